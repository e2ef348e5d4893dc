// Pointers that are thrown, another one each time, and exceptions that are thrown again by exception_ptr, in this
// thread and in others. What a handler gets is printed: it may have to be converted, by an offset of the type or of the
// object that the pointer points to.
#include <cstdio>
#include <exception>
#include <future>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#define OWN_FRAME __attribute__((noinline, noclone))

struct Plain { int n; };
struct Single : Plain { int m; };
struct Other { int o; };
struct Both : Single, Other { int p; };
struct Virtual { int v; };
struct Left : virtual Virtual { int l; };
struct Right : virtual Virtual { int r; };
struct Diamond : Left, Right { int d; }; /* its Virtual is at another offset than in a Left alone */
struct Near { virtual ~Near() {} };
struct West : virtual Near { int w; };
struct East : virtual Near { int e; }; /* begins with its Near, if it is not part of a Ring */
struct Ring : West, East { int r; };
struct Hidden : private Plain { int h; };
enum Colour { RED };

struct Cleanup {
    volatile int *count;
    ~Cleanup() { ++*count; }
};
static volatile int cleaned;

template <class T> OWN_FRAME static void thrower(T value, int depth)
{
    Cleanup c = {&cleaned};
    if (depth == 0)
        throw value;
    thrower(value, depth - 1);
    cleaned = cleaned + 0;
}

static long offset; /* of what a handler got, from what was thrown */
static const char *name;

template <class Caught, class T> OWN_FRAME static bool caught_as(T value, const char *what)
{
    try {
        thrower(value, 2);
    } catch (Caught got) {
        name = what;
        offset = got ? (const volatile char *)got - (const volatile char *)value : -1;
        return true;
    } catch (...) {
        return false;
    }
    return false;
}

#define TRY(Caught) (caught_as<Caught>(value, #Caught) ? printf(" %s %ld", name, offset) : printf(" not %s", #Caught))

template <class T> OWN_FRAME static void all(const char *what, T value)
{
    printf("%s%s:", what, value ? "" : " null");
    TRY(int *), TRY(const int *), TRY(Plain *), TRY(const Plain *), TRY(Single *), TRY(Other *), TRY(Both *),
        TRY(Virtual *), TRY(const Virtual *);
    TRY(Left *), TRY(Right *), TRY(Diamond *), TRY(Near *), TRY(East *), TRY(Hidden *), TRY(void *), TRY(const void *),
        TRY(Colour *);
    try {
        try {
            thrower(value, 1);
        } catch (...) {
            throw;
        }
    } catch (T &again) {
        printf(", again %d", again == value);
    }
    try {
        thrower(value, 1);
    } catch (...) {
        std::exception_ptr p = std::current_exception();
        try {
            std::rethrow_exception(p);
        } catch (T got) {
            printf(", by exception_ptr %d", got == value);
        }
    }
    puts("");
}

static void pointers()
{
    static int ints[100];
    static Plain plain[100];
    static Single single[100];
    static Both both[100];
    static Left left[100];
    static Right right[100];
    static Diamond diamond[100];
    static East east[100];
    static Ring ring[100];
    static Hidden hidden[100];
    static Colour colours[100];
    for (int i = 0; i < 40; i++) {
        bool null = i % 8 == 7;
        all("int", null ? nullptr : &ints[i]);
        all("const int", null ? nullptr : (const int *)&ints[i]);
        all("Plain", null ? nullptr : &plain[i]);
        all("Single", null ? nullptr : &single[i]);
        all("Both", null ? nullptr : &both[i]);
        all("Left", null ? nullptr : i % 2 ? &left[i] : &diamond[i]);
        all("Right", null ? nullptr : i % 2 ? &right[i] : &diamond[i]);
        all("East", null ? nullptr : i % 2 ? &east[i] : &ring[i]);
        all("Diamond", null ? nullptr : &diamond[i]);
        all("Hidden", null ? nullptr : &hidden[i]);
        all("Colour", null ? nullptr : &colours[i]);
        all("void", null ? nullptr : (void *)&colours[i]);
    }
}

struct Error : std::runtime_error, Both {
    explicit Error(int n) : std::runtime_error("error " + std::to_string(n)) { p = n; }
};

template <class F> OWN_FRAME static void wait(F &f, int depth)
{
    Cleanup c = {&cleaned};
    if (depth == 0)
        f.get();
    else
        wait(f, depth - 1);
    cleaned = cleaned + 0;
}

template <class T> OWN_FRAME static void by_future(T value)
{
    std::promise<int> p;
    auto f = p.get_future().share();
    p.set_exception(std::make_exception_ptr(value));
    for (int i = 0; i < 3; i++)
        try {
            wait(f, i);
        } catch (std::logic_error &e) {
            printf(" logic_error %s", e.what());
        } catch (Other &o) {
            printf(" Other %d", static_cast<Both &>(o).p);
        } catch (int n) {
            printf(" int %d", n);
        } catch (int *n) {
            printf(" int * %d", *n);
        } catch (...) {
            printf(" ...");
        }
    auto get = [f] {
        try {
            wait(f, 2);
        } catch (std::exception &e) {
            printf(" in a thread %s", e.what());
        } catch (...) {
            printf(" in a thread ...");
        }
    };
    std::thread(get).join();
    get();
    puts("");
}

int main()
{
    pointers();
    for (int i = 0; i < 30; i++) {
        int n = i;
        by_future(Error(i));
        by_future(std::logic_error("logic " + std::to_string(i)));
        by_future(i);
        by_future(&n);
        by_future(std::string("text"));
    }
    printf("%d cleanups\n", cleaned);
}
