/* A command of plain words, run as a shell would run it, without the shell. */
#ifndef PADDOCK_SHORTCUT_H
#define PADDOCK_SHORTCUT_H

/* Becomes the program of the first word, with the variables that bash gives to it. Returns where it cannot; a shell
   then says why, in its own words. `env` holds no variable that a shell would treat in a way of its own. */
void shortcut_run(char *const *words, char *const *env);

#endif
