/* sudo: the shim that people call, and the agent's side of it. */
#ifndef PADDOCK_SUDO_H
#define PADDOCK_SUDO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SUDO_SOCKET "/run/paddock/sudo.sock"

int sudo_main(int argc, char **argv, char **env);

/* Listens at this path, where its directory exists. */
void sudo_listen(const char *path);
/* True: it was a command of sudo's. */
bool sudo_reaped(pid_t pid, int status);

#endif
