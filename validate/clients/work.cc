// The programs that the clients look at: deterministic work with deep stacks of
// many shapes, through libstdc++ and through callbacks of libc.
//
//   work cpu ROUNDS     computes
//   work alloc ROUNDS   allocates, and leaks some of it
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>

namespace {

uint64_t state = 1;
uint32_t next()
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33);
}

// A tree of virtual calls, as an interpreter has it.
struct Node {
    virtual ~Node() = default;
    virtual uint64_t eval(uint64_t x) const = 0;
};
struct Leaf : Node {
    uint64_t k = next();
    uint64_t eval(uint64_t x) const override
    {
        for (int i = 0; i < 16; i++)
            x = (x ^ k) * 0x9e3779b97f4a7c15u;
        return x;
    }
};
struct Pair : Node {
    std::unique_ptr<Node> a, b;
    uint64_t eval(uint64_t x) const override { return a->eval(x) + b->eval(x ^ 1); }
};
struct Call : Node {
    std::unique_ptr<Node> a;
    std::function<uint64_t(uint64_t)> f = [this](uint64_t x) { return a->eval(x) * 3; };
    uint64_t eval(uint64_t x) const override { return f(x); }
};

std::unique_ptr<Node> grow(int depth)
{
    if (depth == 0)
        return std::make_unique<Leaf>();
    if (next() % 3 == 0) {
        auto c = std::make_unique<Call>();
        c->a = grow(depth - 1);
        return c;
    }
    auto p = std::make_unique<Pair>();
    p->a = grow(depth - 1);
    p->b = grow(next() % 2 ? depth - 1 : depth / 2);
    return p;
}

const Node *shared;
extern "C" int compare(const void *a, const void *b)
{
    uint32_t x = *static_cast<const uint32_t *>(a), y = *static_cast<const uint32_t *>(b);
    return x < y ? -1 : x > y;
}

uint64_t sorted(size_t n)
{
    std::vector<uint32_t> v(n);
    std::generate(v.begin(), v.end(), next);
    qsort(v.data(), n, sizeof v[0], compare);
    std::sort(v.begin(), v.end(), [](uint32_t a, uint32_t b) { return a % 1000 < b % 1000; });
    return v[n / 2];
}

uint64_t matched()
{
    static const std::regex re("(a|b|(c(d|e)*)+)*x");
    std::string text;
    for (int i = 0; i < 150; i++)
        text += "abcde"[next() % 5];
    return std::regex_search(text, re) + text.size();
}

uint64_t cpu(int rounds)
{
    auto tree = grow(14);
    shared = tree.get();
    uint64_t sum = 0;
    for (int i = 0; i < rounds; i++) {
        sum += shared->eval(static_cast<uint64_t>(i));
        sum += sorted(4000);
        sum += matched();
    }
    return sum;
}

// Allocations below stacks of 5 to 60 frames.
std::vector<void *> left_behind;

uint64_t allocate(int depth, std::map<std::string, std::vector<int>> &m)
{
    std::string key(20 + next() % 30, static_cast<char>('a' + next() % 26));
    auto &v = m[key];
    for (int i = 0; i < 4; i++)
        v.push_back(depth);
    uint64_t sum = v.size();
    if (depth > 0) {
        sum += allocate(depth - 1, m);
        if (depth % 16 == 3)
            sum += allocate(depth - 2, m);
    } else if (next() % 4 == 0) {
        left_behind.push_back(malloc(64 + next() % 64));
    }
    if (next() % 2)
        m.erase(key);
    return sum;
}

uint64_t alloc(int rounds)
{
    uint64_t sum = 0;
    for (int i = 0; i < rounds; i++) {
        std::map<std::string, std::vector<int>> m;
        auto tree = grow(3);
        std::function<uint64_t()> f = [&] { return allocate(5 + i % 6 * 7, m); };
        sum += f() + tree->eval(static_cast<uint64_t>(i));
    }
    return sum;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: work cpu|alloc ROUNDS\n");
        return 2;
    }
    int rounds = atoi(argv[2]);
    uint64_t sum = strcmp(argv[1], "cpu") == 0 ? cpu(rounds) : alloc(rounds);
    printf("%016llx\n", static_cast<unsigned long long>(sum));
}
