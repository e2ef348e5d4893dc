// Calls with arguments on the stack, built so that the tables say how many (DW_CFA_GNU_args_size): they are popped
// before landing pads, whose code reads variables relative to rsp. Each line is a way to get to the pad; all is done
// often enough to be remembered.
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <stdexcept>

#define OWN_FRAME __attribute__((noinline, noclone))

static long cleaned;
struct Cleanup {
    long at;
    explicit Cleanup(long n) : at(n) {}
    ~Cleanup() { cleaned = cleaned * 31 + at; }
};

static volatile int way;
enum { INT, RUNTIME, LOGIC, POINTER, EXIT, WAYS };

OWN_FRAME static long leaf(long a, long b, long c, long d, long e, long f, long g, long h, long i)
{
    static int object = 5;
    switch (way) {
    case INT: throw (int)g;
    case RUNTIME: throw std::runtime_error("runtime");
    case LOGIC: throw std::logic_error("logic");
    case POINTER: throw &object;
    case EXIT: pthread_exit(&object);
    }
    return a + b + c + d + e + f + g + h + i;
}

/* Two calls, with different numbers of arguments on the stack, and one pad. */
OWN_FRAME static long cleans(long n)
{
    Cleanup c(n);
    long got = n > 2 ? leaf(1, 2, 3, 4, 5, 6, n, 8, 9) : leaf(1, 2, 3, 4, 5, 6, n, 8, 9) + 1;
    return got + c.at;
}

template <int N> struct Many {
    char bytes[N];
};
OWN_FRAME static long many(Many<200> m, long n)
{
    Cleanup c(n + 1);
    return cleans(n) + m.bytes[n];
}

OWN_FRAME static long catches(long n)
{
    volatile long kept = n * 7;
    Many<200> m = {};
    try {
        return many(m, n) + kept;
    } catch (std::runtime_error &) {
        return kept + 1;
    } catch (int v) {
        return kept + v;
    }
}

OWN_FRAME static long rethrows(long n, long a, long b, long c, long d, long e, long f, long g)
{
    Cleanup z(n + 2);
    try {
        Many<200> m = {};
        return many(m, n) + a + b + c + d + e + f + g;
    } catch (...) {
        Cleanup y(n + 3);
        throw;
    }
}

/* An exception specification: the routine is asked in each phase. */
OWN_FRAME static long specified(long n) throw(std::runtime_error, std::logic_error, int)
{
    Cleanup c(n);
    return rethrows(n, 1, 2, 3, 4, 5, 6, 7) + leaf(1, 2, 3, 4, 5, 6, 7, n, 9);
}

OWN_FRAME static long all(long n)
{
    long got = 0;
    try {
        got = catches(n);
    } catch (std::logic_error &) {
        got = 2;
    } catch (int *p) {
        got = *p;
    }
    try {
        got += rethrows(n, 1, 2, 3, 4, 5, 6, 7);
    } catch (std::exception &e) {
        got += e.what()[0];
    } catch (int v) {
        got += v;
    } catch (int *p) {
        got += *p;
    }
    if (way != POINTER)
        try {
            got += specified(n);
        } catch (std::exception &e) {
            got += e.what()[1];
        } catch (int v) {
            got -= v;
        }
    return got;
}

static void *ends(void *)
{
    return (void *)all(3);
}

int main()
{
    for (int w = INT; w < EXIT; w++) {
        way = w;
        for (long i = 0; i < 500; i++)
            printf("%d %ld: %ld %ld\n", w, i, all(i % 6), cleaned);
    }
    way = EXIT;
    for (int i = 0; i < 20; i++) {
        pthread_t t;
        void *result;
        if (pthread_create(&t, nullptr, ends, nullptr) != 0 || pthread_join(t, &result) != 0)
            abort();
        printf("exit: %d %ld\n", *(int *)result, cleaned);
    }
}
