/* What the scenario "loading" loads and unloads. */
void plugin(void (*fn)(int), int arg);

__attribute__((noinline)) static int inner(void (*fn)(int), int arg)
{
    volatile char buffer[100];
    buffer[arg] = 1;
    fn(arg);
    return buffer[arg];
}

static volatile int sink;
void plugin(void (*fn)(int), int arg) { sink = inner(fn, arg) + inner(fn, arg + 1); }
