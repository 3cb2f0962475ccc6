/* Requests that stay open: known by their id until they are answered, cancelled, or their connection ends. */
#include <errno.h>
#include <stdlib.h>

#include "connection.h"

void *request_open(struct connection *connection, uint32_t id, const struct request_kind *kind, size_t size) {
    if (connection->request_count >= MAX_OPEN_REQUESTS) {
        answer_error(connection, id, EAGAIN, "too many open requests");
        return NULL;
    }
    struct request *request = calloc(1, size);
    if (!request) {
        answer_error(connection, id, ENOMEM, "no memory");
        return NULL;
    }
    *request = (struct request){kind, connection, connection->requests, NULL, id};
    if (request->next) request->next->previous = request;
    connection->requests = request;
    connection->request_count++;
    return request;
}

void request_close(struct request *request) {
    struct connection *connection = request->connection;
    if (request->previous) request->previous->next = request->next;
    else connection->requests = request->next;
    if (request->next) request->next->previous = request->previous;
    connection->request_count--;
    request->kind->stop(request);
    loop_free(request);
}

void request_fail(struct request *request, int error, const char *message) {
    struct connection *connection = request->connection;
    uint32_t id = request->id;
    request_close(request);
    answer_error(connection, id, error, message);
}

struct request *request_find(struct connection *connection, uint32_t id) {
    struct request *request = connection->requests;
    while (request && request->id != id) request = request->next;
    return request;
}
