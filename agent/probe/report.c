#include "probe.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 1, 0))) static void say(const char *format, va_list arguments)
{
    (void)vprintf(format, arguments);
    (void)putchar('\n');
    (void)fflush(stdout);
}

#define TELL(verdict)                                                                                                  \
    do {                                                                                                               \
        va_list arguments;                                                                                             \
        va_start(arguments, format);                                                                                   \
        say(format, arguments);                                                                                        \
        va_end(arguments);                                                                                             \
        return verdict;                                                                                                \
    } while (0)

enum verdict refused(const char *format, ...)
{
    TELL(REFUSED);
}

enum verdict not_refused(const char *format, ...)
{
    TELL(NOT_REFUSED);
}

enum verdict not_tried(const char *format, ...)
{
    TELL(NOT_TRIED);
}

static bool is_denial(int error)
{
    switch (error) {
    case EPERM:
    case EACCES:
    case EROFS:
    case ENOSYS:
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT:
    case ESOCKTNOSUPPORT:
        return true;
    default:
        return false;
    }
}

enum verdict judge(long result, const char *what)
{
    int error = errno;
    if (result >= 0)
        return not_refused("%s succeeded", what);
    if (is_denial(error))
        return refused("%s: %s", what, strerror(error));
    return not_refused("%s passed the permission check: %s", what, strerror(error));
}

enum verdict judge_success(long result, const char *what)
{
    int error = errno;
    if (result >= 0)
        return not_refused("%s succeeded", what);
    return refused("%s: %s", what, strerror(error));
}
