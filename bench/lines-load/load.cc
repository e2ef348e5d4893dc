// Some work for the containers, strings and algorithms of the C++ library.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <queue>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

struct Shape {
	virtual ~Shape() = default;
	virtual double area() const = 0;
};
struct Square : Shape {
	double side;
	explicit Square(double s) : side(s) {}
	double area() const override { return side * side; }
};
struct Circle : Shape {
	double radius;
	explicit Circle(double r) : radius(r) {}
	double area() const override { return 3.14 * radius * radius; }
};

static double shapes(std::mt19937 &random) {
	std::vector<std::unique_ptr<Shape>> all;
	for (int i = 0; i < 2000; i++)
		if (random() % 2)
			all.push_back(std::make_unique<Square>(random() % 100));
		else
			all.push_back(std::make_unique<Circle>(random() % 100));
	std::sort(all.begin(), all.end(), [](auto &a, auto &b) { return a->area() < b->area(); });
	return std::accumulate(all.begin(), all.end(), 0.0, [](double sum, auto &s) { return sum + s->area(); });
}

static size_t words(std::mt19937 &random) {
	std::map<std::string, std::vector<int>> sorted;
	std::unordered_map<std::string, int> hashed;
	for (int i = 0; i < 2000; i++) {
		std::string w = "w" + std::to_string(random() % 500);
		sorted[w].push_back(i);
		hashed[w]++;
	}
	std::ostringstream out;
	for (auto &[w, list] : sorted)
		out << w << ' ' << list.size() << ' ' << hashed[w] << '\n';
	std::istringstream in(out.str());
	size_t n = 0;
	for (std::string w; in >> w;)
		n += w.size();
	return n;
}

static size_t matches(std::mt19937 &random) {
	static const std::regex pattern("a(b|c)*d[0-9]+");
	size_t n = 0;
	for (int i = 0; i < 20; i++)
		n += std::regex_search("xxabcbcbcd" + std::to_string(random() % 1000), pattern);
	return n;
}

static long paths(std::mt19937 &random) {
	const int nodes = 300;
	std::vector<std::vector<std::pair<int, long>>> edges(nodes);
	for (int i = 0; i < nodes * 5; i++)
		edges[random() % nodes].emplace_back(random() % nodes, random() % 50);
	std::vector<long> far(nodes, 1 << 30);
	std::priority_queue<std::pair<long, int>, std::vector<std::pair<long, int>>, std::greater<>> next;
	for (next.emplace(0, 0); !next.empty();) {
		auto [d, at] = next.top();
		next.pop();
		if (d >= far[at])
			continue;
		far[at] = d;
		for (auto [to, cost] : edges[at])
			next.emplace(d + cost, to);
	}
	return std::count_if(far.begin(), far.end(), [](long d) { return d < 1 << 30; });
}

int main(int, char **argv) {
	std::mt19937 random(1);
	double sum = 0;
	std::vector<std::function<double()>> all{
		[&] { return shapes(random); }, [&] { return words(random); }, [&] { return matches(random); },
		    [&] { return paths(random); }};
	for (int i = 0; i < std::atoi(argv[1]); i++)
		for (auto &f : all)
			sum += f();
	std::cout << sum << "\n";
}
