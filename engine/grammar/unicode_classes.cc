#include "engine/grammar/unicode_classes.h"

#include <unicode/uchar.h>
#include <unicode/uset.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"

namespace triptych::grammar {
namespace {

constexpr size_t kMaxName = 64;  // bytes; Unicode's names are shorter

std::optional<CharacterRanges> NewRangesOf(UProperty property, int32_t value) {
  const std::unique_ptr<USet, decltype(&uset_close)> set(uset_openEmpty(), &uset_close);
  UErrorCode error = U_ZERO_ERROR;
  uset_applyIntPropertyValue(set.get(), property, value, &error);
  CharacterRanges ranges;
  const int32_t count = U_SUCCESS(error) ? uset_getItemCount(set.get()) : 0;
  for (int32_t i = 0; i < count; ++i) {
    UChar32 first = 0, last = 0;
    if (uset_getItem(set.get(), i, &first, &last, nullptr, 0, &error) != 0) return std::nullopt;
    ranges.emplace_back(first, last);
  }
  if (U_FAILURE(error)) return std::nullopt;
  return Normalized(std::move(ranges));
}

struct KnownClasses {
  Mutex mutex;
  std::map<std::pair<UProperty, int32_t>, std::optional<CharacterRanges>> ranges
      TRIPTYCH_GUARDED_BY(mutex);
};

// Absent if the property is also one of texts of several characters. Each class is computed once:
// it takes about a millisecond, and clients choose them.
std::optional<CharacterRanges> RangesOf(UProperty property, int32_t value) {
  static KnownClasses known;
  const MutexLock lock(known.mutex);
  auto found = known.ranges.find({property, value});
  if (found == known.ranges.end()) {
    found = known.ranges.emplace(std::pair(property, value), NewRangesOf(property, value)).first;
  }
  return found->second;
}

std::optional<CharacterRanges> ClassOfValue(UProperty property, const std::string& value) {
  if (property == UCHAR_GENERAL_CATEGORY) property = UCHAR_GENERAL_CATEGORY_MASK;
  // ICU knows no names of script extensions, which are those of scripts.
  const int32_t number = u_getPropertyValueEnum(
      property == UCHAR_SCRIPT_EXTENSIONS ? UCHAR_SCRIPT : property, value.c_str());
  if (number == UCHAR_INVALID_CODE) return std::nullopt;
  return RangesOf(property, number);
}

// A character with all that differ from it only in case.
using CaseOrbit = std::pair<char32_t, std::vector<char32_t>>;

std::vector<CaseOrbit> MakeCaseOrbits() {
  std::map<char32_t, std::vector<char32_t>> by_folded;
  for (char32_t character = 0; character <= kLastCharacter; ++character) {
    const auto folded =
        static_cast<char32_t>(u_foldCase(static_cast<UChar32>(character), U_FOLD_CASE_DEFAULT));
    if (folded == character) continue;
    std::vector<char32_t>& orbit = by_folded[folded];
    if (orbit.empty()) orbit.push_back(folded);
    orbit.push_back(character);
  }
  std::vector<CaseOrbit> orbits;
  for (const auto& [folded, orbit] : by_folded) {
    for (const char32_t character : orbit) orbits.emplace_back(character, orbit);
  }
  std::sort(orbits.begin(), orbits.end());
  return orbits;
}

// The orbits of a range's characters.
std::span<const CaseOrbit> OrbitsOf(char32_t first, char32_t last) {
  static const std::vector<CaseOrbit> orbits = MakeCaseOrbits();
  const auto begin = std::ranges::lower_bound(orbits, first, {}, &CaseOrbit::first);
  return {begin, std::ranges::upper_bound(begin, orbits.end(), last, {}, &CaseOrbit::first)};
}

}  // namespace

std::optional<CharacterRanges> UnicodeClass(std::string_view name) {
  if (name.empty() || name.size() > kMaxName || name.find('\0') != name.npos) return std::nullopt;
  if (name == "Any") return Complement({});
  if (name == "ASCII") return CharacterRanges{{0, 0x7F}};
  if (name == "Assigned") return Complement(*UnicodeClass("Cn"));
  const size_t equals = name.find('=');
  if (equals != name.npos) {
    const UProperty property = u_getPropertyEnum(std::string(name.substr(0, equals)).c_str());
    if (property != UCHAR_GENERAL_CATEGORY && property != UCHAR_SCRIPT &&
        property != UCHAR_SCRIPT_EXTENSIONS) {
      return std::nullopt;
    }
    return ClassOfValue(property, std::string(name.substr(equals + 1)));
  }
  const std::string text(name);
  for (const UProperty property : {UCHAR_GENERAL_CATEGORY, UCHAR_SCRIPT}) {
    if (auto found = ClassOfValue(property, text)) return found;
  }
  const UProperty property = u_getPropertyEnum(text.c_str());
  if (property < UCHAR_BINARY_START || property >= UCHAR_BINARY_LIMIT) return std::nullopt;
  return RangesOf(property, 1);
}

size_t CasedCharacters(const CharacterRanges& ranges) {
  size_t cased = 0;
  for (const auto& [first, last] : ranges) cased += OrbitsOf(first, last).size();
  return cased;
}

CharacterRanges CaseClosed(const CharacterRanges& ranges) {
  CharacterRanges closed = ranges;
  for (const auto& [first, last] : ranges) {
    for (const auto& [character, orbit] : OrbitsOf(first, last)) {
      for (const char32_t other : orbit) closed.emplace_back(other, other);
    }
  }
  return Normalized(std::move(closed));
}

}  // namespace triptych::grammar
