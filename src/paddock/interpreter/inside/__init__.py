"""The program that runs code inside a sandbox. It is copied there unchanged, as ``paddock_interpreter``.

It imports nothing of Paddock but its own modules (relatively), only the standard library and, for Python kernels,
ipykernel and jupyter-client. It runs on Python 3.9 and later.

Four kinds of processes, each supervised by the one before:

- the *supervisor* owns the listening socket, so that connections wait instead of failing while the server restarts;
- the *server* speaks HTTP and owns the contexts;
- the *fork server* has ipykernel imported and forks kernels in a few milliseconds;
- a *kernel* per context runs the user's code.
"""
