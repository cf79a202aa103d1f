#include "engine/grammar/json_number.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

namespace triptych::grammar {
namespace {

// Digits of a number without upper bound, and of a fraction: a float64 tells such numbers apart.
constexpr int32_t kMaxBoundedDigits = 15, kMaxBoundedFraction = 9;

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
  Between(Expressions& expressions, Magnitude low, std::optional<Magnitude> high, bool integer)
      : e_(expressions), low_(std::move(low)), high_(std::move(high)), integer_(integer) {}

  Expression Build() {
    std::vector<Expression> lengths;
    const size_t longest = high_ ? high_->integer.size() : low_.integer.size();
    for (size_t length = low_.integer.size(); length <= longest; ++length) {
      lengths.push_back(Integer(0, length, length == low_.integer.size(),
                                high_ && length == high_->integer.size()));
    }
    if (!high_) {
      const auto more = static_cast<int32_t>(longest);
      lengths.push_back(
          e_.Sequence({Digits('1', '9'),
                       e_.Repeat(Digits('0', '9'), more, std::max(more, kMaxBoundedDigits - 1)),
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
    if (!integer_) {
      choices.push_back(e_.Sequence({e_.Literal("."), FractionDigits(0, at_low, at_high)}));
    }
    return e_.Choice(std::move(choices));
  }

  // At least one digit.
  Expression FractionDigits(size_t at, bool at_low, bool at_high) {
    const bool low_ended = at_low && at >= low_.fraction.size();
    const bool high_ended = at_high && at >= high_->fraction.size();
    if (low_ended && !low_.exclusive) return FractionDigits(at, false, at_high);
    if (high_ended) {  // only zeros follow
      const bool above_low = !at_low;
      if (high_->exclusive || !above_low) return e_.Choice({});
      return e_.Repeat(Digits('0', '0'), 1, kMaxBoundedFraction);
    }
    if (low_ended && !at_high) {  // some digit is not zero
      return e_.Sequence({e_.Repeat(Digits('0', '0'), 0, kMaxBoundedFraction), Digits('1', '9'),
                          e_.Repeat(Digits('0', '9'), 0, kMaxBoundedFraction)});
    }
    if (!at_low && !at_high) return e_.Repeat(Digits('0', '9'), 1, kMaxBoundedFraction);
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
  const bool integer_;
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

}  // namespace

bool IsZero(const DecimalBound& bound) {
  return bound.value.find_first_of("123456789") == std::string::npos;
}

Expression NumberBetween(Expressions& expressions, const std::optional<DecimalBound>& low,
                         const std::optional<DecimalBound>& high, bool integer) {
  std::vector<Expression> signs;
  const auto add = [&](bool negative, const Magnitude& from, const std::optional<Magnitude>& to) {
    if (to && !AtMost(from, *to)) return;
    const Expression numbers = Between(expressions, from, to, integer).Build();
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

Expression MultipleOf(Expressions& expressions, int64_t divisor, bool negative) {
  Expressions& e = expressions;
  // [r]: what may follow digits with remainder r; first nothing, then one digit more at a time.
  std::vector<Expression> rest(divisor, e.Choice({}));
  rest[0] = e.Literal("");
  const auto digits = [&](int first, int64_t remainder) {
    std::vector<Expression> choices;
    for (int digit = first; digit < 10; ++digit) {
      choices.push_back(
          e.Sequence({e.Literal(std::to_string(digit)), rest[(remainder * 10 + digit) % divisor]}));
    }
    return choices;
  };
  for (int32_t left = 1; left < kMaxBoundedDigits; ++left) {
    std::vector<Expression> longer;
    for (int64_t r = 0; r < divisor; ++r) {
      std::vector<Expression> choices = digits(0, r);
      if (r == 0) choices.push_back(e.Literal(""));
      longer.push_back(e.Rule("digits"));
      e.Define(longer.back(), e.Choice(std::move(choices)));
    }
    rest = std::move(longer);
  }
  const Expression first = e.Choice(digits(1, 0));
  const Expression sign = negative ? e.Optional(e.Literal("-")) : e.Literal("");
  return e.Choice({e.Literal("0"), e.Sequence({sign, first})});
}

std::optional<std::vector<int64_t>> MultiplesBetween(const DecimalBound& low,
                                                     const DecimalBound& high, int64_t divisor) {
  constexpr double kMost = 1e15;
  constexpr int64_t kMostMultiples = int64_t{1} << 16;
  const double from = std::strtod(low.value.c_str(), nullptr);
  const double to = std::strtod(high.value.c_str(), nullptr);
  if (std::abs(from) > kMost || std::abs(to) > kMost) return std::nullopt;
  // Multiples are integers, so that the bounds may be, too.
  auto first = static_cast<int64_t>(std::ceil(from)), last = static_cast<int64_t>(std::floor(to));
  if (low.exclusive && static_cast<double>(first) == from) ++first;
  if (high.exclusive && static_cast<double>(last) == to) --last;
  first += (divisor - first % divisor) % divisor;
  if (last - first > kMostMultiples * divisor) return std::nullopt;
  std::vector<int64_t> multiples;
  for (int64_t multiple = first; multiple <= last; multiple += divisor) {
    multiples.push_back(multiple);
  }
  return multiples;
}

}  // namespace triptych::grammar
