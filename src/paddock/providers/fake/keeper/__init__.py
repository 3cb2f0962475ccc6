"""The keeper: one small process per sandbox, started with its first command, that outlives the server.

It starts bubblewrap, runs commands inside it, keeps their output in a bounded spool, forwards their input, ends them at
their hard timeout and records how they ended. Servers talk to it through files only: a line in the FIFO
``keeper/requests``, answers in ``processes/<id>/``. As long as it lives it holds a lock on ``keeper/lock``; when it
dies, bubblewrap and all that runs in it die too.

It runs under ``python -I -S`` as a package of its own, so it imports nothing of Paddock and nothing slow to load.
"""
