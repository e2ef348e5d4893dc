// Some work for g++: containers, regular expressions, templates.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>

int main(int argc, char **argv) {
	std::map<std::string, std::vector<int>> found;
	std::regex pattern("a(b|c)*d");
	for (int i = 1; i < argc; i++)
		if (std::regex_match(argv[i], pattern))
			found[argv[i]].push_back(i);
	std::function<size_t(size_t)> add = [&](size_t x) { return x + found.size(); };
	std::sort(argv, argv + argc, [](char *a, char *b) { return std::string(a) < b; });
	std::cout << add(3) << "\n";
}
