#include "nearest.h"

#include <algorithm>
#include <numeric>

namespace nvio {
namespace {

// Insertions, deletions and changes of one character that make `a` of `b` (Levenshtein, 1966).
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& known) {
  std::string found;
  std::size_t fewest = name.size() / 3 + 2;  // from here on it is another word
  for (const std::string& one : known) {
    const std::size_t away = edits(name, one);
    if (away >= fewest) continue;
    fewest = away;
    found = one;
  }
  return found;
}

}  // namespace nvio
