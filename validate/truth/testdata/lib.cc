// What libstdc++ has compiled: streams, locales, numbers as text, paths, memory resources, threads.
#include <charconv>
#include <codecvt>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <iomanip>
#include <iostream>
#include <list>
#include <locale>
#include <map>
#include <memory_resource>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

static size_t streams(int n) {
	std::stringstream s;
	s << std::setw(12) << std::setfill('.') << std::hex << n << ' ' << std::dec << std::setprecision(9) << n / 7.0 << ' ' << std::scientific << n * 1e10L
	  << ' ' << std::boolalpha << (n & 1) << ' ' << std::showbase << std::oct << n << ' ' << static_cast<void *>(&s) << '\n';
	std::string w;
	double d;
	size_t sum = 0;
	while (s >> w) sum += w.size();
	std::istringstream in("17 3.5 0x1f text");
	int i;
	in >> i >> d >> std::hex >> n >> w;
	std::wostringstream ws;
	ws << L"wide " << i << L' ' << d << std::endl;
	return sum + w.size() + ws.str().size();
}

static size_t facets(int n) {
	std::ostringstream s;
	std::tm t = {};
	t.tm_year = 100 + n % 50, t.tm_mon = n % 12, t.tm_mday = 1 + n % 28;
	s << std::put_time(&t, "%A %d %B %Y %H:%M:%S %j %U") << std::put_money(n * 100.L) << std::quoted("a \"b\" c");
	std::istringstream in("2020-02-03 04:05:06");
	in >> std::get_time(&t, "%Y-%m-%d %H:%M:%S");
	std::locale loc;
	auto &c = std::use_facet<std::collate<char>>(loc);
	const char a[] = "alpha", b[] = "beta";
	std::wstring_convert<std::codecvt_utf8<wchar_t>> conv;
	return s.str().size() + c.compare(a, a + 5, b, b + 4) + c.hash(a,
	    a + 5) % 3 + conv.to_bytes(conv.from_bytes("\xc3\xa4\xe2\x82\xac")).size();
}

static size_t numbers(int n) {
	char b[128];
	size_t sum = 0;
	for (double d : {n / 3.0, n * 1e200, 1.0 / (n + 1e-300), 5e-324}) {
		auto r = std::to_chars(b, b + sizeof b, d);
		double back;
		std::from_chars(b, r.ptr, back);
		sum += r.ptr - b + (back == d);
		sum += std::to_chars(b, b + sizeof b, d, std::chars_format::hex).ptr - b;
		sum += std::to_chars(b, b + sizeof b, static_cast<float>(d)).ptr - b;
	}
	return sum + std::stoi("42") + std::to_string(n * 1.5).size() + static_cast<size_t>(std::stod("1e3"));
}

static size_t paths(int n) {
	namespace fs = std::filesystem;
	fs::path p = fs::temp_directory_path() / ("a" + std::to_string(n)) / ".." / "b.tar.gz";
	std::error_code none;
	size_t sum = p.lexically_normal().string().size() + p.stem().string().size() + p.relative_path().native().size() + fs::exists(p, none);
	for (auto &e : p) sum += e.native().size();
	for (auto &e : fs::directory_iterator("/usr/include",
	    none)) sum += e.path().filename().native().size() + e.is_directory(none);
	try {
		sum += fs::file_size("/nowhere");
	} catch (const fs::filesystem_error &e) {
		sum += std::string(e.what()).size() + e.code().message().size();
	}
	return sum;
}

static size_t containers(int n) {
	std::pmr::unsynchronized_pool_resource pool;
	std::pmr::map<int, std::pmr::string> m(&pool);
	std::mt19937 r(n);
	std::list<int> l;
	std::unordered_map<std::string, int> u;
	for (int i = 0; i < 100; i++) {
		m.emplace(r() % 1000, std::pmr::string(r() % 40, 'x', &pool));
		l.push_back(r() % 100);
		u[std::string(r() % 20, 'y') + std::to_string(i)] = i;
	}
	l.sort();
	for (int i = 0; i < 50 && !m.empty(); i++) m.erase(m.begin());
	std::string s = "begin";
	for (int i = 0; i < 40; i++) s.insert(s.find_last_of("aeiou") + 1, "x").replace(0, 1, "yy").append(s, 0, 3),
	    s.resize(s.size() / 2 + 7, 'e');
	return m.size() + l.front() + u.size() + s.rfind("x");
}

static size_t threads(int n) {
	std::mutex m;
	std::condition_variable v;
	bool go = false;
	auto f = std::async(std::launch::async, [&] {
		std::unique_lock<std::mutex> l(m);
		v.wait(l, [&] { return go; });
		if (n & 1) throw std::system_error(n % 100, std::generic_category());
		return n;
	});
	{
		std::lock_guard<std::mutex> l(m);
		go = true;
	}
	v.notify_all();
	try {
		return f.get();
	} catch (const std::exception &e) {
		return std::string(e.what()).size();
	}
}

int main(int argc, char **) {
	size_t sum = 0;
	for (int i = argc; i < 40; i++)
		sum += streams(i) + facets(i) + numbers(i) + containers(i) + (i % 8 ? 0 : paths(i)) + (i % 10 ? 0 : threads(i));
	std::cout << sum % 2 << std::endl;
}
