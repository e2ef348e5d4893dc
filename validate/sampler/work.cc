// A file for g++ to compile under the sampler.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

template <int N> struct Tower : Tower<N - 1> {
    std::variant<int, std::string, std::vector<double>> value;
    int sum() const { return Tower<N - 1>::sum() + static_cast<int>(value.index()); }
};
template <> struct Tower<0> {
    int sum() const { return 0; }
};

int main()
{
    std::map<std::string, std::function<int(int)>> table;
    for (int i = 0; i < 100; i++)
        table[std::to_string(i)] = [i](int x) { return x * i; };
    std::unordered_map<int, std::unique_ptr<std::vector<int>>> more;
    std::regex pattern("(a|b)*c+[0-9]{2,}");
    std::vector<int> v(1000);
    std::iota(v.begin(), v.end(), 0);
    std::stable_sort(v.begin(), v.end(), std::greater<>());
    std::cout << table["7"](Tower<60>().sum()) << std::regex_match("aabc12", pattern) << v[0] << more.size() << '\n';
}
