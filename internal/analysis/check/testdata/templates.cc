// Much code of a compiler's from a small file: containers, streams and expressions of the standard library,
// instantiated whole.
#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

struct item {
	std::string name;
	double weight = 0;
	bool operator<(const item &o) const { return weight < o.weight; }
	bool operator==(const item &o) const { return name == o.name; }
};

template class std::vector<item>;
template class std::deque<item>;
template class std::list<item>;
template class std::set<item>;
template class std::map<std::string, item>;
template class std::unordered_map<std::string, item>;
template class std::basic_regex<char>;
template class std::basic_regex<wchar_t>;
template class std::basic_stringstream<char32_t>;
template class std::basic_string<char32_t>;

bool matches(const std::string &s, const std::string &e) { return std::regex_match(s, std::regex(e)); }
bool matches(const std::wstring &s, const std::wstring &e) { return std::regex_search(s, std::wregex(e)); }
void order(std::vector<item> &v, std::deque<item> &d, std::list<item> &l) {
	std::sort(v.begin(), v.end());
	std::stable_sort(d.begin(), d.end());
	l.sort();
	try {
		std::inplace_merge(v.begin(), v.begin() + v.size() / 2, v.end());
	} catch (const std::bad_alloc &) {
		v.clear();
	}
}
