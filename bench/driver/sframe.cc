// Many functions for little text: what the size of SFrame is measured on.
#include <algorithm>
#include <complex>
#include <deque>
#include <fstream>
#include <functional>
#include <future>
#include <iomanip>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <queue>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

using std::string;

struct Record {
	string name;
	std::vector<double> values;
	std::map<string, int> counts;
	bool operator<(const Record &o) const { return name < o.name; }
	bool operator==(const Record &o) const { return name == o.name; }
};

template class std::basic_regex<char>;
template class std::basic_regex<wchar_t>;
template class std::vector<Record>;
template class std::vector<std::vector<string>>;
template class std::vector<std::complex<double>>;
template class std::deque<Record>;
template class std::deque<string>;
template class std::list<Record>;
template class std::list<std::list<int>>;
template class std::map<string, Record>;
template class std::map<int, std::vector<string>>;
template class std::multimap<string, std::list<string>>;
template class std::set<Record>;
template class std::set<std::pair<string, int>>;
template class std::unordered_map<string, std::vector<int>>;
template class std::unordered_map<int, string>;
template class std::unordered_multimap<string, string>;
template class std::unordered_set<string>;
template class std::priority_queue<Record>;
template class std::basic_string<char32_t>;
template class std::basic_stringstream<char>;
template class std::basic_fstream<char>;

std::vector<string> split(const string &text, const string &pattern)
{
	std::regex re(pattern);
	return {std::sregex_token_iterator(text.begin(), text.end(), re, -1), std::sregex_token_iterator()};
}

void order(std::vector<Record> &v, std::vector<std::pair<string, double>> &w, std::list<Record> &l)
{
	std::sort(v.begin(), v.end());
	std::stable_sort(v.begin(), v.end(), [](const Record &a, const Record &b) { return a.values < b.values; });
	std::partial_sort(w.begin(), w.begin() + (long)(w.size() / 2), w.end());
	std::nth_element(w.begin(), w.begin() + (long)(w.size() / 2), w.end());
	std::shuffle(w.begin(), w.end(), std::mt19937_64(1));
	l.sort();
	l.unique();
}

std::future<double> sum(std::vector<double> v)
{
	return std::async(std::launch::async, [v] { return std::accumulate(v.begin(), v.end(), 0.0); });
}
