/* Sockets on the loopback of the sandbox. */
#ifndef PADDOCK_PORTS_H
#define PADDOCK_PORTS_H

#include <stdbool.h>
#include <stdint.h>

/* A socket that is on its way to a port, and does not block; -1 with errno. */
int port_connect(uint16_t port, bool version6);
/* The listener of this port and kind (as of LISTEN_ON), made if need be and kept; -1 with errno. */
int port_listener(uint16_t port, uint8_t kind);

#endif
