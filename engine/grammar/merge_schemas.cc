#include "engine/grammar/merge_schemas.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "engine/grammar/error.h"
#include "engine/grammar/schema_keywords.h"

namespace triptych::grammar {
namespace {

constexpr int kMaxMergeDepth = 64;
constexpr int kMaxMerges = 20'000;         // of one call
constexpr int64_t kMaxValues = 2'000'000;  // copied by one call

class Merger {
 public:
  explicit Merger(const Resolve& resolve) : resolve_(resolve) {}

  OrderedJson Merge(const OrderedJson& a, const OrderedJson& b) {
    if (++merges_ > kMaxMerges || ++depth_ > kMaxMergeDepth) FailForSize();
    Charge(a);
    Charge(b);
    OrderedJson merged = MergeFlat(Flatten(a), Flatten(b));
    --depth_;
    return merged;
  }

 private:
  [[noreturn]] static void FailForSize() {
    throw GrammarError("needs too many schemas to be joined", ".allOf");
  }

  void Charge(const OrderedJson& copied) {
    if (++values_ > kMaxValues) FailForSize();
    if (!copied.is_structured()) return;
    for (const OrderedJson& value : copied) Charge(value);
  }

  // A schema that meets an equal one, or `true`, stays as it is: it may be one that cannot be
  // joined, or that refers to itself.
  OrderedJson MergeParts(const OrderedJson& a, const OrderedJson& b) {
    const OrderedJson* const only = b == true || a == b ? &a : a == true ? &b : nullptr;
    if (only == nullptr) return Merge(a, b);
    Charge(*only);
    return *only;
  }

  // The schema without $ref and allOf.
  OrderedJson Flatten(const OrderedJson& schema) {
    if (!schema.is_object()) return schema;
    const bool has_ref = schema.contains("$ref"), has_all = schema.contains("allOf");
    OrderedJson flat = WithNullAsType(schema);
    if (!has_ref && !has_all) return flat;
    flat.erase("$ref");
    flat.erase("allOf");
    if (has_ref && schema["$ref"].is_string()) {
      flat = Merge(flat, resolve_(schema["$ref"].get<std::string>()));
    }
    if (has_all && schema["allOf"].is_array()) {
      for (const OrderedJson& one : schema["allOf"]) flat = Merge(flat, one);
    }
    return flat;
  }

  OrderedJson MergeFlat(OrderedJson a, OrderedJson b) {
    if (a == false || b == false) return false;
    if (a == true) return b;
    if (b == true) return a;
    if (!a.is_object() || !b.is_object()) throw GrammarError("is no schema");
    OrderedJson merged = OrderedJson::object();
    for (const auto& [key, value] : a.items()) {
      if (IsOfObject(key) || IsOfArray(key)) continue;
      const auto other = b.find(key);
      OrderedJson both = other == b.end() ? value : Both(key, value, *other);
      if (both.is_discarded()) return false;
      merged[key] = std::move(both);
    }
    for (const auto& [key, value] : b.items()) {
      if (!IsOfObject(key) && !IsOfArray(key) && !merged.contains(key)) merged[key] = value;
    }
    const bool any = (a.contains("anyOf") || a.contains("oneOf")) &&
                     (b.contains("anyOf") || b.contains("oneOf"));
    if (any) throw GrammarError("cannot be joined with another anyOf or oneOf", ".anyOf");
    MergeObjects(a, b, merged);
    MergeArrays(a, b, merged);
    return merged;
  }

  static bool IsOfObject(std::string_view key) {
    return key == "properties" || key == "additionalProperties" || key == "patternProperties";
  }

  static bool IsOfArray(std::string_view key) { return key == "items" || key == "prefixItems"; }

  static OrderedJson AsList(const OrderedJson& types) {
    return types.is_array() ? types : OrderedJson::array({types});
  }

  static OrderedJson BothTypes(const OrderedJson& a, const OrderedJson& b) {
    OrderedJson both = OrderedJson::array();
    for (const OrderedJson& one : AsList(a)) {
      for (const OrderedJson& other : AsList(b)) {
        const bool narrows = one == "number" && other == "integer";
        const bool fits = one == other || narrows || (one == "integer" && other == "number");
        const OrderedJson& kept = narrows ? other : one;
        if (fits && std::find(both.begin(), both.end(), kept) == both.end()) both.push_back(kept);
      }
    }
    return both.empty() ? OrderedJson(OrderedJson::value_t::discarded) : both;
  }

  // Discarded if no value fits both.
  OrderedJson Both(const std::string& key, const OrderedJson& a, const OrderedJson& b) {
    if (a == b || IsAnnotation(key)) return a;
    if (key == "type") return BothTypes(a, b);
    if (key == "const") return OrderedJson::value_t::discarded;
    if (key == "enum" && a.is_array() && b.is_array()) {
      OrderedJson both = OrderedJson::array();
      for (const OrderedJson& one : a) {
        if (std::find(b.begin(), b.end(), one) != b.end()) both.push_back(one);
      }
      return both;
    }
    if (key == "required" && a.is_array() && b.is_array()) {
      OrderedJson both = a;
      for (const OrderedJson& one : b) {
        if (std::find(both.begin(), both.end(), one) == both.end()) both.push_back(one);
      }
      return both;
    }
    if (a.is_number() && b.is_number()) {
      if (key == "minimum" || key == "exclusiveMinimum" || key == "minLength" ||
          key == "minItems" || key == "minProperties") {
        return std::max(a, b);
      }
      if (key == "maximum" || key == "exclusiveMaximum" || key == "maxLength" ||
          key == "maxItems" || key == "maxProperties") {
        return std::min(a, b);
      }
    }
    throw GrammarError("cannot be joined with another " + key, "." + key);
  }

  void MergeObjects(const OrderedJson& a, const OrderedJson& b, OrderedJson& merged) {
    OrderedJson properties = OrderedJson::object();
    bool patterns = false, closed = false;
    for (const OrderedJson* const one : {&a, &b}) {
      patterns = patterns || one->contains("patternProperties");
      closed = closed || one->contains("additionalProperties");
      const auto own = one->find("properties");
      if (own == one->end() || !own->is_object()) continue;
      for (const auto& [name, schema] : own->items()) {
        if (!properties.contains(name)) {
          properties[name] = MergeParts(PropertyOf(a, name), PropertyOf(b, name));
        }
      }
    }
    if (patterns) {
      for (const OrderedJson* const one : {&a, &b}) {
        const OrderedJson& other = one == &a ? b : a;
        if (!one->contains("patternProperties")) continue;
        if (std::any_of(other.items().begin(), other.items().end(),
                        [](const auto& item) { return IsOfObject(item.key()); })) {
          throw GrammarError("cannot be joined with other properties", ".patternProperties");
        }
        merged["patternProperties"] = (*one)["patternProperties"];
      }
    }
    if (!properties.empty()) merged["properties"] = std::move(properties);
    if (closed) {
      merged["additionalProperties"] =
          MergeParts(a.value("additionalProperties", OrderedJson(true)),
                     b.value("additionalProperties", OrderedJson(true)));
    }
  }

  // `items` of a schema are those after its own prefixItems.
  void MergeArrays(const OrderedJson& a, const OrderedJson& b, OrderedJson& merged) {
    size_t count = 0;
    for (const OrderedJson* const one : {&a, &b}) {
      const auto own = one->find("prefixItems");
      if (own == one->end()) continue;
      if (!own->is_array()) throw GrammarError("is no list", ".prefixItems");
      count = std::max(count, own->size());
    }
    const OrderedJson any = true;
    const auto item_of = [&any](const OrderedJson& schema, size_t i) -> const OrderedJson& {
      const auto own = schema.find("prefixItems"), items = schema.find("items");
      if (own != schema.end() && i < own->size()) return (*own)[i];
      return items == schema.end() ? any : *items;
    };
    for (size_t i = 0; i < count; ++i) {
      merged["prefixItems"].push_back(MergeParts(item_of(a, i), item_of(b, i)));
    }
    if (a.contains("items") || b.contains("items")) {
      merged["items"] = MergeParts(item_of(a, count), item_of(b, count));
    }
  }

  const Resolve& resolve_;
  int merges_ = 0;
  int64_t values_ = 0;  // copied
  int depth_ = 0;
};

}  // namespace

OrderedJson MergeSchemas(const OrderedJson& a, const OrderedJson& b, const Resolve& resolve) {
  return Merger(resolve).Merge(a, b);
}

}  // namespace triptych::grammar
