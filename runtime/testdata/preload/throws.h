// What the program throws and its plugin share.
#ifndef THROWS_H
#define THROWS_H

struct __attribute__((visibility("default"))) Special {
    int value;
    explicit Special(int v) : value(v) {}
};

using pass_fn = void(int what, void (*callback)(int));

#endif
