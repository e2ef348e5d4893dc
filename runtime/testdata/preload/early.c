/* A library whose constructor takes stacks, before a preloaded library's has run. */
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <execinfo.h>
#include <libunwind.h>
#include <unwind.h>

int early_frames[3], early_opened;

static _Unwind_Reason_Code count(struct _Unwind_Context *context, void *arg)
{
    *(int *)arg += _Unwind_GetIP(context) != 0;
    return _URC_NO_REASON;
}

__attribute__((constructor)) static void early(void)
{
    void *pcs[64];
    unw_context_t context;
    unw_cursor_t cursor;
    early_frames[0] = backtrace(pcs, 64);
    _Unwind_Backtrace(count, &early_frames[1]);
    unw_getcontext(&context);
    early_frames[2] = unw_init_local(&cursor, &context) == 0;
    while (unw_step(&cursor) > 0)
        early_frames[2]++;
    early_opened = dlopen("libm.so.6", RTLD_NOW) != 0;
}
