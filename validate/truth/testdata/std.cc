// Streams, strings, containers, regular expressions and exceptions of libstdc++.
#include <algorithm>
#include <iostream>
#include <locale>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

static int deep(int n) {
	std::string s(n + 20, 'x');
	if (n == 0)
		throw std::runtime_error(s);
	return deep(n - 1) + (int)s.size();
}

static void work(int seed) {
	std::mt19937 r(seed);
	for (int i = 0; i < 400; i++) {
		std::ostringstream o;
		o << i << ' ' << i / 3.0 << ' ' << std::hex << i * 77 << std::fixed << i * 1.5L << '\n';
		std::istringstream in(o.str());
		std::string w;
		double x = 0;
		in >> w >> x;
		std::map<std::string, int> m;
		std::set<double> s;
		for (int k = 0; k < 40; k++) {
			m[o.str() + std::to_string(r())] = k;
			s.insert(k * x);
		}
		try {
			deep(i % 7);
		} catch (const std::exception &e) {
			w += e.what();
		}
		std::regex e("([a-z]+)([0-9]*) ?(x|y)+");
		std::smatch found;
		w = "abc12 xyxy" + w;
		std::regex_search(w, found, e);
		std::vector<std::string> v;
		for (auto &p : m)
			v.push_back(p.first);
		std::stable_sort(v.rbegin(), v.rend());
		try {
			std::stoi("none");
		} catch (...) {
		}
		std::use_facet<std::ctype<char>>(std::locale()).toupper(w.data(), w.data() + w.size());
	}
}

int main() {
	std::thread a(work, 1), b(work, 2);
	a.join();
	b.join();
}
