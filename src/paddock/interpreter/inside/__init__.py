"""The program that runs code inside a sandbox. It is sent there as it is, under the name ``paddock_interpreter``.

It knows nothing of the rest of Paddock, imports only its own modules (relatively), the standard library and, for Python
kernels alone, ipykernel and jupyter-client; and it runs on Python 3.9 and later.

Four kinds of process, each of which the one before it keeps alive:

- the *supervisor* holds the listening socket, so that a connection waits rather than fails while the server starts;
- the *server* speaks HTTP and owns the contexts;
- the *nursery* has ipykernel imported and forks a kernel from that in a few milliseconds;
- a *kernel* per context runs the user's code.
"""
