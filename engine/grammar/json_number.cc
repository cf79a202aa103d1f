#include "engine/grammar/json_number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

namespace triptych::grammar {
namespace {

// Digits of a number without upper bound, and of a fraction: a float64 tells such numbers apart.
constexpr int32_t kMaxBoundedDigits = 15, kMaxBoundedFraction = 9;
constexpr int32_t kMaxDecimalDigits = 12;  // of multiples of a decimal number, with the fraction

// Digits before the point.
int32_t MaxIntegerDigits(int decimals) {
  return decimals > 0 ? kMaxDecimalDigits - decimals : kMaxBoundedDigits;
}

// A decimal number that is not negative.
struct Magnitude {
  std::string integer, fraction;  // digits; the fraction without zeros at its end
  bool exclusive = false;
};

Magnitude ToMagnitude(std::string_view digits, bool exclusive) {
  const size_t point = std::min(digits.find('.'), digits.size());
  Magnitude magnitude{
      .integer = std::string(digits.substr(0, point)), .fraction = {}, .exclusive = exclusive};
  if (point < digits.size()) magnitude.fraction = digits.substr(point + 1);
  while (magnitude.fraction.ends_with('0')) magnitude.fraction.pop_back();
  return magnitude;
}

// Writes the magnitudes between two bounds, digit by digit. A number is "at" a bound while its
// digits so far are those of the bound.
class Between {
 public:
  Between(Expressions& expressions, Magnitude low, std::optional<Magnitude> high,
          std::optional<int> decimals)
      : e_(expressions),
        low_(std::move(low)),
        high_(std::move(high)),
        max_integer_(MaxIntegerDigits(decimals.value_or(0))) {
    const size_t longest =
        std::max(low_.fraction.size(), high_ ? high_->fraction.size() : size_t{0});
    decimals_ = decimals ? static_cast<size_t>(*decimals) : longest + kMaxBoundedFraction;
  }

  Expression Build() {
    std::vector<Expression> lengths;
    const size_t longest = high_ ? high_->integer.size() : low_.integer.size();
    for (size_t length = low_.integer.size(); length <= longest; ++length) {
      lengths.push_back(Integer(0, length, length == low_.integer.size(),
                                high_ && length == high_->integer.size()));
    }
    if (!high_) {
      const auto more = static_cast<int32_t>(longest);
      lengths.push_back(e_.Sequence(
          {Digits('1', '9'), e_.Repeat(Digits('0', '9'), more, std::max(more, max_integer_ - 1)),
           Fraction(false, false)}));
    }
    return e_.Choice(std::move(lengths));
  }

 private:
  Expression Digits(char first, char last) {
    return e_.Characters({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
  }

  Expression Integer(size_t at, size_t length, bool at_low, bool at_high) {
    if (at == length) return Fraction(at_low, at_high);
    const char least = at_low ? low_.integer[at] : (at == 0 && length > 1 ? '1' : '0');
    const char most = at_high ? high_->integer[at] : '9';
    return NextDigit(least, most, at_low, at_high, [&](bool low, bool high) {
      if (low || high) return Integer(at + 1, length, low, high);
      const auto left = static_cast<int32_t>(length - at - 1);
      return e_.Sequence({e_.Repeat(Digits('0', '9'), left, left), Fraction(false, false)});
    });
  }

  // A digit from `least` to `most`, followed by what `rest` makes of being still at the bounds.
  template <typename Rest>
  Expression NextDigit(char least, char most, bool at_low, bool at_high, const Rest& rest) {
    std::vector<Expression> choices;
    const auto add = [&](char first, char last, bool low, bool high) {
      if (first <= last) choices.push_back(e_.Sequence({Digits(first, last), rest(low, high)}));
    };
    if (at_low && at_high && least == most) {
      add(least, most, true, true);
    } else if (least <= most) {
      if (at_low) add(least, least, true, false);
      const char first = static_cast<char>(least + (at_low ? 1 : 0));
      add(first, static_cast<char>(most - (at_high ? 1 : 0)), false, false);
      if (at_high) add(most, most, false, true);
    }
    return e_.Choice(std::move(choices));
  }

  // Both functions: the digits `at`... of the bounds' fractions.
  bool MayStop(size_t at, bool at_low, bool at_high) const {
    // A number that stops at the lower bound is equal to it, or smaller.
    if (at_low && (at < low_.fraction.size() || low_.exclusive)) return false;
    return !at_high || at < high_->fraction.size() || !high_->exclusive;
  }

  Expression Fraction(bool at_low, bool at_high) {
    std::vector<Expression> choices;
    if (MayStop(0, at_low, at_high)) choices.push_back(e_.Literal(""));
    if (decimals_ > 0) {
      choices.push_back(e_.Sequence({e_.Literal("."), FractionDigits(0, at_low, at_high)}));
    }
    return e_.Choice(std::move(choices));
  }

  // At least one digit, and at most the decimals that are left.
  Expression FractionDigits(size_t at, bool at_low, bool at_high) {
    if (at >= decimals_) return e_.Choice({});
    const auto left = static_cast<int32_t>(decimals_ - at);
    const bool low_ended = at_low && at >= low_.fraction.size();
    const bool high_ended = at_high && at >= high_->fraction.size();
    if (low_ended && !low_.exclusive) return FractionDigits(at, false, at_high);
    if (high_ended) {  // only zeros follow
      const bool above_low = !at_low;
      if (high_->exclusive || !above_low) return e_.Choice({});
      return e_.Repeat(Digits('0', '0'), 1, left);
    }
    if (low_ended && !at_high) {  // some digit is not zero
      Expression some = e_.Choice({});
      for (int32_t more = 0; more < left; ++more) {
        some = e_.Choice({e_.Sequence({Digits('1', '9'), e_.Repeat(Digits('0', '9'), 0, more)}),
                          e_.Sequence({Digits('0', '0'), some})});
      }
      return some;
    }
    if (!at_low && !at_high) return e_.Repeat(Digits('0', '9'), 1, left);
    const char least = at_low && !low_ended ? low_.fraction[at] : '0';
    const char most = at_high ? high_->fraction[at] : '9';
    return NextDigit(least, most, at_low, at_high, [&](bool low, bool high) {
      const Expression more = FractionDigits(at + 1, low, high);
      return MayStop(at + 1, low, high) ? e_.Optional(more) : more;
    });
  }

  Expressions& e_;
  const Magnitude low_;
  const std::optional<Magnitude> high_;
  const int32_t max_integer_;
  size_t decimals_;
};

bool IsNegative(const DecimalBound& bound) { return bound.value.starts_with('-'); }

std::string_view WithoutSign(const DecimalBound& bound) {
  return std::string_view(bound.value).substr(IsNegative(bound) ? 1 : 0);
}

// True if a <= b, of decimal numbers that are not negative.
bool AtMost(const Magnitude& a, const Magnitude& b) {
  if (a.integer.size() != b.integer.size()) return a.integer.size() < b.integer.size();
  if (a.integer != b.integer) return a.integer < b.integer;
  return a.fraction <= b.fraction;
}

// A decimal number times 10^places.
std::string Shifted(std::string decimal, int places) {
  size_t point = decimal.find('.');
  if (point == decimal.npos) {
    point = decimal.size();
  } else {
    decimal.erase(point, 1);
  }
  point += places;
  if (decimal.size() < point) decimal.append(point - decimal.size(), '0');
  return decimal.insert(point, ".");
}

// units / 10^decimals, without zeros at its end.
std::string Text(int64_t units, int decimals) {
  std::string digits = std::to_string(std::abs(units));
  if (std::ssize(digits) <= decimals) digits.insert(0, decimals + 1 - digits.size(), '0');
  std::string fraction = digits.substr(digits.size() - decimals);
  digits.resize(digits.size() - decimals);
  while (fraction.ends_with('0')) fraction.pop_back();
  return (units < 0 ? "-" : "") + digits + (fraction.empty() ? "" : "." + fraction);
}

}  // namespace

bool IsZero(const DecimalBound& bound) {
  return bound.value.find_first_of("123456789") == std::string::npos;
}

Expression NumberBetween(Expressions& expressions, const std::optional<DecimalBound>& low,
                         const std::optional<DecimalBound>& high, std::optional<int> decimals) {
  std::vector<Expression> signs;
  const auto add = [&](bool negative, const Magnitude& from, const std::optional<Magnitude>& to) {
    if (to && !AtMost(from, *to)) return;
    const Expression numbers = Between(expressions, from, to, decimals).Build();
    signs.push_back(negative ? expressions.Sequence({expressions.Literal("-"), numbers}) : numbers);
  };
  const Magnitude zero{.integer = "0", .fraction = {}};
  if (!low || IsNegative(*low)) {
    std::optional<Magnitude> to;
    if (low) to = ToMagnitude(WithoutSign(*low), low->exclusive);
    Magnitude from{.integer = "0", .fraction = {}, .exclusive = true};
    if (high && IsNegative(*high) && !IsZero(*high)) {
      from = ToMagnitude(WithoutSign(*high), high->exclusive);
    }
    add(/*negative=*/true, from, to);
  }
  if (!high || !IsNegative(*high) || IsZero(*high)) {
    std::optional<Magnitude> to;
    if (high) to = ToMagnitude(WithoutSign(*high), high->exclusive);
    const bool from_low = low && (!IsNegative(*low) || IsZero(*low));
    const Magnitude from = from_low ? ToMagnitude(WithoutSign(*low), low->exclusive) : zero;
    add(/*negative=*/false, from, to);
  }
  return expressions.Choice(std::move(signs));
}

std::optional<DecimalStep> StepOf(std::string_view decimal) {
  if (decimal.starts_with('-')) return std::nullopt;
  const Magnitude magnitude = ToMagnitude(decimal, /*exclusive=*/false);
  const std::string digits = magnitude.integer + magnitude.fraction;
  DecimalStep step{.decimals = static_cast<int>(magnitude.fraction.size())};
  const char* const end = digits.data() + digits.size();
  if (std::from_chars(digits.data(), end, step.units).ec != std::errc()) return std::nullopt;
  return step.units > 0 ? std::optional(step) : std::nullopt;
}

Expression MultipleOf(Expressions& expressions, DecimalStep step, bool negative) {
  Expressions& e = expressions;
  const int64_t divisor = step.units;
  // A digit, and what may follow it by the remainder, for each remainder before it.
  const auto digits = [&](int first, int64_t remainder, const std::vector<Expression>& rest) {
    std::vector<Expression> choices;
    for (int digit = first; digit < 10; ++digit) {
      choices.push_back(
          e.Sequence({e.Literal(std::to_string(digit)), rest[(remainder * 10 + digit) % divisor]}));
    }
    return choices;
  };
  // [r]: what may follow digits with remainder r. First after all decimals, then with one more at a
  // time; missing decimals are zeros.
  std::vector<Expression> rest(divisor, e.Choice({}));
  rest[0] = e.Literal("");
  Expression fraction;  // with its point, after the remainder 0
  int64_t missing = 1;  // 10^left % divisor
  for (int left = 1; left <= step.decimals; ++left) {
    missing = missing * 10 % divisor;
    const bool is_first = left == step.decimals;
    std::vector<Expression> longer;
    for (int64_t r = 0; r < divisor; ++r) {
      Expression more = e.Rule("digits");
      e.Define(more, e.Choice(digits(0, r, rest)));
      if (is_first) more = e.Sequence({e.Literal("."), more});
      if (r == 0) fraction = more;
      std::vector<Expression> choices = {more};
      if (r * missing % divisor == 0) choices.push_back(e.Literal(""));
      longer.push_back(e.Choice(std::move(choices)));
    }
    rest = std::move(longer);
  }
  const std::vector<Expression> ends = rest;  // after the digits before the point
  for (int32_t left = 1; left < MaxIntegerDigits(step.decimals); ++left) {
    std::vector<Expression> longer;
    for (int64_t r = 0; r < divisor; ++r) {
      std::vector<Expression> choices = digits(0, r, rest);
      choices.push_back(ends[r]);
      longer.push_back(e.Rule("digits"));
      e.Define(longer.back(), e.Choice(std::move(choices)));
    }
    rest = std::move(longer);
  }
  const Expression sign = negative ? e.Optional(e.Literal("-")) : e.Literal("");
  std::vector<Expression> choices = {e.Sequence({sign, e.Choice(digits(1, 0, rest))})};
  if (step.decimals > 0) choices.push_back(e.Sequence({sign, e.Literal("0"), fraction}));
  choices.push_back(e.Literal("0"));
  return e.Choice(std::move(choices));
}

std::optional<std::vector<std::string>> MultiplesBetween(const DecimalBound& low,
                                                         const DecimalBound& high,
                                                         DecimalStep step) {
  constexpr double kMost = 1e15;
  constexpr int64_t kMostMultiples = int64_t{1} << 16;
  const double from = std::strtod(Shifted(low.value, step.decimals).c_str(), nullptr);
  const double to = std::strtod(Shifted(high.value, step.decimals).c_str(), nullptr);
  if (std::abs(from) > kMost || std::abs(to) > kMost) return std::nullopt;
  // Multiples are integers times 10^-decimals, so that the bounds may be, too.
  auto first = static_cast<int64_t>(std::ceil(from)), last = static_cast<int64_t>(std::floor(to));
  if (low.exclusive && static_cast<double>(first) == from) ++first;
  if (high.exclusive && static_cast<double>(last) == to) --last;
  first += (step.units - first % step.units) % step.units;
  if (last - first > kMostMultiples * step.units) return std::nullopt;
  std::vector<std::string> multiples;
  for (int64_t multiple = first; multiple <= last; multiple += step.units) {
    multiples.push_back(Text(multiple, step.decimals));
  }
  return multiples;
}

}  // namespace triptych::grammar
