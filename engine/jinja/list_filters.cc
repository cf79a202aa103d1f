#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "engine/base/parse.h"
#include "engine/jinja/builtins.h"
#include "engine/jinja/methods.h"
#include "engine/jinja/operators.h"
#include "engine/jinja/text_functions.h"
#include "engine/jinja/value_text.h"

namespace triptych::jinja {
namespace {

// The member of `value` that an attribute such as "a.b.0" names.
Value Member(Heap& heap, Value value, const Value& attribute) {
  if (attribute.text() == nullptr) return GetItem(heap, value, attribute);
  const Text& path = *attribute.text();
  for (const auto& [begin, end] : Split(path.bytes(), ".", -1, /*from_right=*/false, heap)) {
    const Text part = path.Sub(begin, end);
    const auto index = ParseNumber<int64_t>(part.bytes(), 0, int64_t{1} << 40);
    value = GetItem(heap, value, index ? Value::Of(*index) : MakeText(heap, part));
  }
  return value;
}

// The key that filters of sequences compare: a member of the item, in lower case unless case
// matters.
Value KeyOf(Heap& heap, const Value& item, const Value* attribute, bool case_sensitive) {
  const Value key =
      attribute == nullptr || attribute->is_none() ? item : Member(heap, item, *attribute);
  if (case_sensitive || key.text() == nullptr) return key;
  return MapCase(heap, *key.text(), LetterCase::kLower);
}

// Memory of an entry of a set, besides its text.
constexpr size_t kSeenBytes = 128;

using KeyedItems = std::vector<std::pair<Value, Value>>;  // key, item

KeyedItems WithKeys(Heap& heap, const Value& input, const Value* attribute, bool case_sensitive) {
  const Value list = ToList(heap, input);
  heap.Require(list.list()->items.size() * sizeof(KeyedItems::value_type));
  KeyedItems items;
  for (const Value& item : list.list()->items) {
    heap.Step();
    items.emplace_back(KeyOf(heap, item, attribute, case_sensitive), item);
  }
  return items;
}

void Sort(Heap& heap, KeyedItems& items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const auto& left, const auto& right) {
    return reverse ? Compare(heap, "<", right.first, left.first) < 0
                   : Compare(heap, "<", left.first, right.first) < 0;
  });
}

Value ListOfItems(Heap& heap, KeyedItems items) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (auto& [key, item] : items) values.push_back(std::move(item));
  return MakeList(heap, std::move(values));
}

Value Join(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("join", arguments, {"d", "attribute"});
  const Text separator = parameters[0] == nullptr ? Text() : Str(heap, *parameters[0]);
  const Value list = ToList(heap, input);
  TextBuilder out(heap);
  bool first = true;
  for (const Value& item : list.list()->items) {
    if (!std::exchange(first, false)) out.Add(separator);
    const bool whole = parameters[1] == nullptr || parameters[1]->is_none();
    out.Add(Str(heap, whole ? item : Member(heap, item, *parameters[1])));
  }
  return out.Take();
}

Value ListFilter(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("list", arguments, {});
  return MakeList(heap, ToList(heap, input).list()->items);
}

Value Items(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("items", arguments, {});
  if (input.is_undefined()) return MakeList(heap, {}, List::kGenerator);
  if (input.dict() == nullptr)
    throw Failure("items needs a dict, not " + std::string(input.TypeName()));
  return MakeList(heap, CallMethod(heap, input, "items", {}).list()->items, List::kGenerator);
}

Value First(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("first", arguments, {});
  const Value list = ToList(heap, input);
  if (list.list()->items.empty()) return Value::Missing(heap, "there is no first item");
  return list.list()->items.front();
}

Value Last(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("last", arguments, {});
  const Value list = ToList(heap, input);
  if (list.list()->items.empty()) return Value::Missing(heap, "there is no last item");
  return list.list()->items.back();
}

Value Reverse(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("reverse", arguments, {});
  const Value list = ToList(heap, input);
  heap.Step(static_cast<int64_t>(list.list()->items.size()));
  std::vector<Value> items(list.list()->items.rbegin(), list.list()->items.rend());
  if (input.text() == nullptr) return MakeList(heap, std::move(items), List::kGenerator);
  TextBuilder out(heap);
  for (const Value& item : items) out.Add(*item.text());
  return out.Take();
}

Value SortFilter(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  KeyedItems items = WithKeys(heap, input, parameters[2], parameters.TruthAt(1, false));
  Sort(heap, items, parameters.TruthAt(0, false));
  return ListOfItems(heap, std::move(items));
}

Value DictSort(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (input.dict() == nullptr)
    throw Failure("dictsort needs a dict, not " + std::string(input.TypeName()));
  const Text* const by = parameters.TextAt(1);
  const Value place = Value::Of(int64_t{by != nullptr && by->bytes() == "value" ? 1 : 0});
  KeyedItems items =
      WithKeys(heap, CallMethod(heap, input, "items", {}), &place, parameters.TruthAt(0, false));
  Sort(heap, items, parameters.TruthAt(2, false));
  return ListOfItems(heap, std::move(items));
}

Value Unique(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("unique", arguments, {"case_sensitive", "attribute"});
  KeyedItems items = WithKeys(heap, input, parameters[1], parameters.TruthAt(0, false));
  std::vector<Value> unique;
  std::set<std::string> seen;  // also refuses what cannot be a key
  size_t bytes = 0;
  for (auto& [key, item] : items) {
    std::string text = KeyText(&heap, key);
    CountSearch(heap, text, seen.size());
    bytes += text.size() + kSeenBytes;
    heap.Require(bytes);
    if (seen.insert(std::move(text)).second) unique.push_back(std::move(item));
  }
  return MakeList(heap, std::move(unique), List::kGenerator);
}

template <bool kMax>
Value Extreme(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters(kMax ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const KeyedItems items = WithKeys(heap, input, parameters[1], parameters.TruthAt(0, false));
  if (items.empty()) return Value::Missing(heap, "there is no item");
  const auto* best = &items.front();
  for (const auto& one : items) {
    const int order = Compare(heap, "<", one.first, best->first);
    if (kMax ? order > 0 : order < 0) best = &one;
  }
  return best->second;
}

Value Sum(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("sum", arguments, {"attribute", "start"});
  Value sum = parameters[1] == nullptr ? Value::Of(int64_t{0}) : *parameters[1];
  for (const auto& [key, item] : WithKeys(heap, input, parameters[0], /*case_sensitive=*/true)) {
    sum = Binary(heap, "+", sum, key);
  }
  return sum;
}

Value Map(Heap& heap, const Value& input, const Arguments& arguments) {
  const Value list = ToList(heap, input);
  std::vector<Value> mapped;
  if (const Value* const attribute = arguments.Named("attribute")) {
    const Value* const otherwise = arguments.Named("default");
    for (const Value& item : list.list()->items) {
      Value member = Member(heap, item, *attribute);
      if (member.is_undefined() && otherwise != nullptr) member = *otherwise;
      mapped.push_back(std::move(member));
    }
    return MakeList(heap, std::move(mapped), List::kGenerator);
  }
  if (arguments.positional.empty() || arguments.positional[0].text() == nullptr) {
    throw Failure("map needs the name of a filter, or attribute");
  }
  const std::string& name = arguments.positional[0].text()->bytes();
  const Filter filter = FindFilter(name);
  if (filter == nullptr) throw Failure("there is no filter '" + name.substr(0, 40) + "'");
  const Arguments rest = arguments.Rest();
  for (const Value& item : list.list()->items) mapped.push_back(filter(heap, item, rest));
  return MakeList(heap, std::move(mapped), List::kGenerator);
}

// select, reject, selectattr and rejectattr.
template <bool kAttribute, bool kKeep>
Value Select(Heap& heap, const Value& input, const Arguments& arguments) {
  Arguments rest = arguments;
  Value attribute;
  if (kAttribute) {
    if (rest.positional.empty()) throw Failure("selectattr needs the name of an attribute");
    attribute = rest.positional[0];
    rest = rest.Rest();
  }
  Test test = nullptr;
  if (!rest.positional.empty()) {
    const Text* const name = rest.positional[0].text();
    test = name == nullptr ? nullptr : FindTest(name->bytes());
    if (test == nullptr) throw Failure("select needs the name of a test");
    rest = rest.Rest();
  }
  const Value list = ToList(heap, input);
  std::vector<Value> kept;
  for (const Value& item : list.list()->items) {
    heap.Step();
    const Value value = kAttribute ? Member(heap, item, attribute) : item;
    if ((test == nullptr ? value.Truth() : test(heap, value, rest)) == kKeep) kept.push_back(item);
  }
  return MakeList(heap, std::move(kept), List::kGenerator);
}

Value GroupBy(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = parameters.TruthAt(2, false);
  KeyedItems items;
  for (auto& [key, item] : WithKeys(heap, input, parameters[0], /*case_sensitive=*/true)) {
    items.emplace_back(key.is_undefined() && parameters[1] != nullptr ? *parameters[1] : key, item);
  }
  KeyedItems sorted;
  for (const auto& [key, item] : items) {
    sorted.emplace_back(KeyOf(heap, key, nullptr, case_sensitive),
                        MakeList(heap, {key, item}, List::kTuple));
  }
  Sort(heap, sorted, /*reverse=*/false);
  std::vector<Value> groups;
  for (size_t i = 0; i < sorted.size();) {
    std::vector<Value> members;
    const size_t first = i;
    for (; i < sorted.size() && Equal(heap, sorted[i].first, sorted[first].first); ++i) {
      members.push_back(sorted[i].second.list()->items[1]);
    }
    groups.push_back(
        MakeList(heap, {sorted[first].second.list()->items[0], MakeList(heap, std::move(members))},
                 List::kTuple));
  }
  return MakeList(heap, std::move(groups));
}

Value Batch(Heap& heap, const Value& input, const Arguments& arguments) {
  const Parameters parameters("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = parameters.IntegerAt(0, 0);
  if (size < 1 || size > (int64_t{1} << 20)) throw Failure("batch: linecount is out of range");
  const Value list = ToList(heap, input);
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : list.list()->items) {
    row.push_back(item);
    if (static_cast<int64_t>(row.size()) < size) continue;
    rows.push_back(MakeList(heap, std::exchange(row, {})));
  }
  if (!row.empty()) {
    if (parameters[1] != nullptr && !parameters[1]->is_none()) {
      heap.Require(static_cast<size_t>(size) * sizeof(Value));
      row.resize(static_cast<size_t>(size), *parameters[1]);
    }
    rows.push_back(MakeList(heap, std::move(row)));
  }
  return MakeList(heap, std::move(rows), List::kGenerator);
}

}  // namespace

Filter FindListFilter(std::string_view name) {
  static const std::map<std::string_view, Filter> filters = {
      {"batch", Batch},
      {"dictsort", DictSort},
      {"first", First},
      {"groupby", GroupBy},
      {"items", Items},
      {"join", Join},
      {"last", Last},
      {"list", ListFilter},
      {"map", Map},
      {"max", Extreme<true>},
      {"min", Extreme<false>},
      {"reject", Select<false, false>},
      {"rejectattr", Select<true, false>},
      {"reverse", Reverse},
      {"select", Select<false, true>},
      {"selectattr", Select<true, true>},
      {"sort", SortFilter},
      {"sum", Sum},
      {"unique", Unique},
  };
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace triptych::jinja
