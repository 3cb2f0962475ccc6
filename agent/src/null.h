/* An empty input, opened before anybody inside could put something else in its place. */
#ifndef PADDOCK_NULL_H
#define PADDOCK_NULL_H

extern int null_descriptor;

#endif
