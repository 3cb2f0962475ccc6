#include "launch.h"

#include <sys/resource.h>

/* Never above what this process has itself: raising a limit is a privilege. */
void limit(struct plan *plan)
{
    unsigned int which = (unsigned int)plan_number(plan);
    rlim_t soft = (rlim_t)plan_number(plan);
    rlim_t hard = (rlim_t)plan_number(plan);
    struct rlimit now;
    if (getrlimit((int)which, &now) < 0)
        fail("limit", "read");
    if (now.rlim_max != RLIM_INFINITY && hard > now.rlim_max)
        hard = now.rlim_max;
    if (soft > hard)
        soft = hard;
    struct rlimit wanted = {.rlim_cur = soft, .rlim_max = hard};
    if (setrlimit((int)which, &wanted) < 0)
        fail("limit", "write");
}
