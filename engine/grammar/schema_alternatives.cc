#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "engine/grammar/schema_compiler.h"
#include "engine/grammar/schema_keywords.h"
#include "engine/grammar/schema_references.h"

namespace triptych::grammar {
namespace {

constexpr int kMaxCompared = 8;  // depth of properties that tell alternatives of oneOf apart

// The number of values in `value`, a long text for several: what a copy costs.
size_t CopyCost(const OrderedJson& value) {
  constexpr size_t kBytesPerValue = 16;
  if (value.is_string()) return 1 + value.get_ref<const std::string&>().size() / kBytesPerValue;
  size_t cost = 1;
  if (value.is_structured()) {
    for (const OrderedJson& one : value) cost += CopyCost(one);
  }
  return cost;
}

}  // namespace

Expression SchemaCompiler::Alternatives(const OrderedJson& schema, const std::string& key,
                                        const std::string& path) {
  const OrderedJson& list = ListOf(schema, key, path);
  const OrderedJson rest = Without(schema, key);
  const bool alone = SaysNothing(rest);
  std::vector<const OrderedJson*> schemas;
  std::vector<Expression> choices;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = PathOf(path, key, i);
    if (list[i].is_object()) CheckKeywords(list[i], where);
    const OrderedJson& one = alone ? list[i] : Merged(rest, list[i], where);
    if (key == "oneOf") {
      for (size_t j = 0; j < i; ++j) {
        if (AreDisjoint(one, *schemas[j], path, kMaxCompared)) continue;
        FailAt(where, "may accept a value that oneOf[" + std::to_string(j) +
                          "] accepts, too; allowed: alternatives that differ in type or in a "
                          "required property, or anyOf");
      }
    }
    schemas.push_back(&one);
    choices.push_back(Value(one, where));
  }
  return e_.Choice(std::move(choices));
}

bool SchemaCompiler::AreDisjoint(const OrderedJson& a, const OrderedJson& b,
                                 const std::string& path, int depth) {
  if (a == false || b == false) return true;
  if (!a.is_object() || !b.is_object() || depth == 0) return false;
  for (const OrderedJson* const one : {&a, &b}) {
    if (!one->contains("$ref") || !(*one)["$ref"].is_string()) continue;
    const OrderedJson& target = ResolveReference(root_, (*one)["$ref"].get<std::string>(), path);
    return AreDisjoint(target, one == &a ? b : a, path, depth - 1);
  }
  size_t work = 1;
  for (const OrderedJson* const one : {&a, &b}) {
    for (const char* const key : {"const", "enum", "required", "type"}) {
      if (one->contains(key)) work += CopyCost((*one)[key]);
    }
  }
  comparisons_ -= std::min(work, comparisons_);
  if (comparisons_ == 0) return false;
  const auto is_constant = [](const OrderedJson& schema) {
    return schema.contains("const") || schema.contains("enum");
  };
  std::set<Json> a_values, b_values;  // in which the order of members means nothing
  std::set<std::string> a_types, b_types;
  const auto read = [&](const OrderedJson& schema, auto& values, auto& types) {
    if (!is_constant(schema)) {
      types = TypesOf(schema, path);
      if (types.contains("integer")) types.insert("number");
      return;
    }
    for (const OrderedJson& one : ConstantsOf(schema, path)) {
      types.insert(TypeOf(one));
      values.insert(Json(one));
    }
  };
  read(a, a_values, a_types);
  read(b, b_values, b_types);
  const std::set<std::string> a_required = RequiredOf(a, path), b_required = RequiredOf(b, path);
  const auto are_none_of = [](const auto& ones, const auto& others) {
    return std::none_of(ones.begin(), ones.end(),
                        [&](const auto& one) { return others.contains(one); });
  };
  if (are_none_of(a_types, b_types)) return true;
  if (is_constant(a) && is_constant(b)) return are_none_of(a_values, b_values);
  if (a_types != std::set<std::string>{"object"} || b_types != a_types) return false;
  // Both alternatives judge a member that one of them requires.
  const auto disagree_about = [&](const std::string& name) {
    return AreDisjoint(PropertyOf(a, name), PropertyOf(b, name), path, depth - 1);
  };
  return std::any_of(a_required.begin(), a_required.end(), disagree_about) ||
         std::any_of(b_required.begin(), b_required.end(), disagree_about);
}

Expression SchemaCompiler::Constants(const OrderedJson& schema, const std::string& path) {
  const std::vector<OrderedJson> values = ConstantsOf(schema, path);
  for (const auto& [type, keywords] : kKeywordsOfTypes) {
    const bool matters =
        std::any_of(values.begin(), values.end(),
                    [&, &one_type = type](const auto& one) { return TypeOf(one) == one_type; });
    for (const std::string& key : keywords) {
      if (matters && schema.contains(key)) {
        FailAt(PathOf(path, key), "is not supported together with const or enum");
      }
    }
  }
  std::vector<Expression> choices;
  choices.reserve(values.size());
  for (const OrderedJson& one : values) choices.push_back(Constant(one));
  return e_.Choice(std::move(choices));
}

Expression SchemaCompiler::Constant(const OrderedJson& value) {
  if (value.is_object()) {
    std::vector<Expression> parts;
    for (const auto& [key, member] : value.items()) {
      parts.push_back(parts.empty() ? json_.Space() : json_.Comma());
      parts.push_back(json_.Member(Key(key), Constant(member)));
    }
    return json_.Object(e_.Sequence(std::move(parts)));
  }
  if (value.is_array()) {
    std::vector<Expression> parts;
    for (const OrderedJson& item : value) {
      parts.push_back(parts.empty() ? json_.Space() : json_.Comma());
      parts.push_back(Constant(item));
    }
    return json_.Array(e_.Sequence(std::move(parts)));
  }
  if (value.is_string()) return Key(value.get<std::string>());
  // An integer, also if it is written with a fraction.
  const bool is_whole = value.is_number_float() && HasType({"integer"}, value) &&
                        std::abs(value.get<double>()) < 0x1p53;
  return e_.Literal(is_whole ? std::to_string(static_cast<int64_t>(value.get<double>()))
                             : value.dump());
}

Expression SchemaCompiler::Key(const std::string& text) {
  return e_.Literal('"' + JsonText::Escaped(text) + '"');
}

}  // namespace triptych::grammar
