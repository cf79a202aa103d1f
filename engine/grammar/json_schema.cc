#include "engine/grammar/json_schema.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/quoted.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/error.h"
#include "engine/grammar/json_number.h"
#include "engine/grammar/json_text.h"
#include "engine/grammar/limits.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/merge_schemas.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/string_formats.h"

namespace triptych::grammar {
namespace {

constexpr size_t kMaxSchemaValues = size_t{1} << 16;
constexpr size_t kMaxSchemaDepth = 64;
constexpr int kMaxSchemas = 20'000;  // compiled ones, copies that joining makes included
constexpr int64_t kMaxDivisor = 100;
constexpr int kMaxCompared = 8;  // depth of properties that tell alternatives of oneOf apart

const std::set<std::string> kTypes = {"array",  "boolean", "integer", "null",
                                      "number", "object",  "string"};
const std::set<std::string> kAnnotations = {
    "$comment",    "$defs",    "$id",     "$schema",  "default", "definitions", "deprecated",
    "description", "examples", "example", "readOnly", "title",   "writeOnly"};
// Keywords of values of one type, which mean nothing for others.
const std::map<std::string, std::set<std::string>> kOfType = {
    {"array", {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
    {"object",
     {"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
      "minProperties", "maxProperties"}},
    {"string", {"minLength", "maxLength", "pattern", "format"}}};

std::string TypeOf(const OrderedJson& value) {
  if (value.is_number()) return "number";
  return value.type_name();
}

class SchemaCompiler {
 public:
  SchemaCompiler(Expressions& expressions, const OrderedJson& root)
      : e_(expressions), json_(expressions), root_(root) {}

  Expression Run() {
    const Expression start = Referenced("#", root_);
    while (!referenced_.empty()) {
      const auto [rule, schema, path] = referenced_.back();
      referenced_.pop_back();
      e_.Define(rule, Value(*schema, path));
    }
    return start;
  }

 private:
  struct Unbuilt {
    Expression rule;
    const OrderedJson* schema;
    std::string path;
  };

  [[noreturn]] static void Fail(const std::string& path, const std::string& what) {
    throw GrammarError(what, path);
  }

  static std::string PathOf(const std::string& path, const std::string& key) {
    return path + "." + Printable(key);
  }
  static std::string PathOf(const std::string& path, const std::string& key, size_t index) {
    return PathOf(path, key) + "[" + std::to_string(index) + "]";
  }

  [[noreturn]] static void Refuse(const std::string& path, const std::string& key,
                                  const OrderedJson& value, const std::string& allowed) {
    Fail(PathOf(path, key),
         "is " + Printable(value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)) +
             "; allowed: " + allowed);
  }

  // References.

  // The schema at a JSON pointer in a URI's fragment (RFC 6901).
  const OrderedJson& Resolved(const std::string& reference, const std::string& path) const {
    const auto refuse = [&](const std::string& why) {
      Fail(PathOf(path, "$ref"), "is " + Quoted(reference) + ", " + why);
    };
    if (reference != "#" && !reference.starts_with("#/")) {
      refuse("which is not supported; allowed: # and #/ with the path of a schema");
    }
    const OrderedJson* found = &root_;
    std::string pointer = reference.substr(1);
    for (size_t at = 0; at < pointer.size();) {
      const size_t end = std::min(pointer.find('/', at + 1), pointer.size());
      const std::string key = Unescaped(pointer.substr(at + 1, end - at - 1));
      at = end;
      if (found->is_object() && found->contains(key)) {
        found = &(*found)[key];
        continue;
      }
      size_t index = 0;
      const auto [last, error] = std::from_chars(key.data(), key.data() + key.size(), index);
      const bool is_index = error == std::errc() && last == key.data() + key.size();
      if (!found->is_array() || !is_index || index >= found->size()) refuse("which names nothing");
      found = &(*found)[index];
    }
    return *found;
  }

  static std::string Unescaped(const std::string& part) {
    std::string text;
    for (size_t i = 0; i < part.size(); ++i) {
      unsigned value = 0;
      if (part[i] == '~' && i + 1 < part.size() && (part[i + 1] == '0' || part[i + 1] == '1')) {
        text += part[++i] == '0' ? '~' : '/';
      } else if (part[i] == '%' && i + 2 < part.size() &&
                 std::from_chars(&part[i + 1], &part[i + 3], value, 16).ptr == &part[i + 3]) {
        text += static_cast<char>(value);
        i += 2;
      } else {
        text += part[i];
      }
    }
    return text;
  }

  Expression Referenced(const std::string& path, const OrderedJson& schema) {
    const auto [found, added] = rules_.try_emplace(&schema);
    if (added) {
      found->second = e_.Rule("schema");
      referenced_.push_back({found->second, &schema, path == "#" ? "" : path});
    }
    return found->second;
  }

  // Both schemas, as one that stays in place.
  const OrderedJson& Merged(const OrderedJson& a, const OrderedJson& b, const std::string& path) {
    try {
      merged_.push_back(std::make_unique<OrderedJson>(
          MergeSchemas(a, b, [&](const std::string& reference) -> const OrderedJson& {
            return Resolved(reference, path);
          })));
    } catch (const GrammarError& error) {
      if (error.path().starts_with(path) && !path.empty()) throw;
      Fail(path + error.path(), error.what());
    }
    return *merged_.back();
  }

  // Values of any kind.

  Expression Value(const OrderedJson& schema, const std::string& path) {
    if (++schemas_ > kMaxSchemas) Fail(path, "needs too many schemas to be compiled");
    if (schema.is_boolean()) return schema == true ? json_.AnyValue() : e_.Choice({});
    if (!schema.is_object()) {
      Fail(path, "is no schema; allowed: an object, true, false");
    }
    if (++depth_ > kMaxNesting) Fail(path, "is nested too deeply");
    CheckKeywords(schema, path);
    const Expression value = ObjectSchema(schema, path);
    --depth_;
    return value;
  }

  void CheckKeywords(const OrderedJson& schema, const std::string& path) const {
    static const std::set<std::string> kOthers = {"$ref",  "allOf", "anyOf", "oneOf",
                                                  "const", "enum",  "type"};
    for (const auto& [key, value] : schema.items()) {
      const bool is_nested_id = key == "$id" && &schema != &root_;
      bool known = (kAnnotations.contains(key) || kOthers.contains(key)) && !is_nested_id;
      for (const auto& [type, keywords] : kOfType) known = known || keywords.contains(key);
      if (!known) Fail(PathOf(path, key), "is not supported");
    }
  }

  static OrderedJson Without(const OrderedJson& schema, const std::string& key) {
    OrderedJson rest = schema;
    rest.erase(key);
    return rest;
  }

  // True if only annotations are left.
  static bool SaysNothing(const OrderedJson& schema) {
    return std::all_of(schema.items().begin(), schema.items().end(),
                       [](const auto& item) { return kAnnotations.contains(item.key()); });
  }

  Expression ObjectSchema(const OrderedJson& schema, const std::string& path) {
    if (schema.contains("$ref")) {
      const OrderedJson& reference = schema["$ref"];
      if (!reference.is_string()) Refuse(path, "$ref", reference, "a string");
      const OrderedJson& target = Resolved(reference.get<std::string>(), path);
      const OrderedJson rest = Without(schema, "$ref");
      if (!SaysNothing(rest)) return Value(Merged(rest, target, path), path);
      return Referenced(PathOf(path, "$ref"), target);
    }
    if (schema.contains("allOf")) {
      const OrderedJson& all = List(schema, "allOf", path);
      const OrderedJson* merged = &Keep(Without(schema, "allOf"));
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].is_object()) CheckKeywords(all[i], PathOf(path, "allOf", i));
        merged = &Merged(*merged, all[i], path);
      }
      return Value(*merged, path);
    }
    for (const char* const key : {"anyOf", "oneOf"}) {
      if (schema.contains(key)) return Alternatives(schema, key, path);
    }
    if (schema.contains("const") || schema.contains("enum")) return Constants(schema, path);
    std::vector<Expression> choices;
    for (const std::string& type : Types(schema, path)) {
      choices.push_back(OfType(type, schema, path));
    }
    return e_.Choice(std::move(choices));
  }

  const OrderedJson& Keep(OrderedJson schema) {
    return *merged_.emplace_back(std::make_unique<OrderedJson>(std::move(schema)));
  }

  static const OrderedJson& List(const OrderedJson& schema, const std::string& key,
                                 const std::string& path) {
    const OrderedJson& list = schema[key];
    if (!list.is_array() || list.empty()) Refuse(path, key, list, "an array, not empty");
    return list;
  }

  Expression Alternatives(const OrderedJson& schema, const std::string& key,
                          const std::string& path) {
    const OrderedJson& list = List(schema, key, path);
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
          Fail(where, "may accept a value that oneOf[" + std::to_string(j) +
                          "] accepts, too; allowed: alternatives that differ in type or in a "
                          "required constant, or anyOf");
        }
      }
      schemas.push_back(&one);
      choices.push_back(Value(one, where));
    }
    return e_.Choice(std::move(choices));
  }

  static bool HasType(const std::set<std::string>& types, const OrderedJson& value) {
    if (types.contains(TypeOf(value))) return true;
    if (!types.contains("integer")) return false;
    return value.is_number_integer() ||
           (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
  }

  // The values that const and enum leave.
  std::vector<OrderedJson> ValuesOf(const OrderedJson& schema, const std::string& path) const {
    std::vector<OrderedJson> values;
    if (schema.contains("enum")) {
      const OrderedJson& list = schema["enum"];
      if (!list.is_array()) Refuse(path, "enum", list, "an array");
      values.assign(list.begin(), list.end());
      if (schema.contains("const")) {
        std::erase_if(values, [&](const OrderedJson& one) { return one != schema["const"]; });
      }
    } else {
      values = {schema["const"]};
    }
    const std::set<std::string> types = Types(schema, path);
    std::erase_if(values, [&](const OrderedJson& one) { return !HasType(types, one); });
    return values;
  }

  Expression Constants(const OrderedJson& schema, const std::string& path) {
    const std::vector<OrderedJson> values = ValuesOf(schema, path);
    for (const auto& [type, keywords] : kOfType) {
      const bool matters =
          std::any_of(values.begin(), values.end(),
                      [&, &one_type = type](const auto& one) { return TypeOf(one) == one_type; });
      for (const std::string& key : keywords) {
        if (matters && schema.contains(key)) {
          Fail(PathOf(path, key), "is not supported together with const or enum");
        }
      }
    }
    std::vector<Expression> choices;
    choices.reserve(values.size());
    for (const OrderedJson& one : values) choices.push_back(Constant(one));
    return e_.Choice(std::move(choices));
  }

  Expression Constant(const OrderedJson& value) {
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

  Expression Key(const std::string& text) {
    return e_.Literal('"' + JsonText::Escaped(text) + '"');
  }

  // integer is not among the types if number is.
  static std::set<std::string> Types(const OrderedJson& schema, const std::string& path) {
    if (!schema.contains("type")) {
      return {"array", "boolean", "null", "number", "object", "string"};
    }
    const OrderedJson& type = schema["type"];
    const OrderedJson list = type.is_array() ? type : OrderedJson::array({type});
    std::set<std::string> types;
    for (const OrderedJson& one : list) {
      if (!one.is_string() || !kTypes.contains(one.get<std::string>())) {
        Refuse(path, "type", type, "array, boolean, integer, null, number, object, string");
      }
      types.insert(one.get<std::string>());
    }
    if (types.contains("number")) types.erase("integer");
    return types;
  }

  // True if it is certain that no value fits both schemas.
  bool AreDisjoint(const OrderedJson& a, const OrderedJson& b, const std::string& path,
                   int depth) const {
    if (a == false || b == false) return true;
    if (!a.is_object() || !b.is_object() || depth == 0) return false;
    for (const OrderedJson* const one : {&a, &b}) {
      if (!one->contains("$ref") || !(*one)["$ref"].is_string()) continue;
      const OrderedJson& target = Resolved((*one)["$ref"].get<std::string>(), path);
      return AreDisjoint(target, one == &a ? b : a, path, depth - 1);
    }
    const std::set<std::string> a_types = Types(a, path), b_types = Types(b, path);
    const auto is_number = [](const std::string& type) {
      return type == "integer" || type == "number";
    };
    const bool share_type = std::any_of(a_types.begin(), a_types.end(), [&](const auto& type) {
      return b_types.contains(type) ||
             (is_number(type) && std::any_of(b_types.begin(), b_types.end(), is_number));
    });
    if (!share_type) return true;
    const auto is_constant = [](const OrderedJson& schema) {
      return schema.contains("const") || schema.contains("enum");
    };
    if (is_constant(a) && is_constant(b)) {
      const std::vector<OrderedJson> a_values = ValuesOf(a, path), b_values = ValuesOf(b, path);
      return std::none_of(a_values.begin(), a_values.end(), [&](const OrderedJson& one) {
        return std::find(b_values.begin(), b_values.end(), one) != b_values.end();
      });
    }
    if (a_types != std::set<std::string>{"object"} || b_types != a_types) return false;
    for (const std::string& name : Required(a, path)) {
      const std::set<std::string> others = Required(b, path);
      const bool both = others.contains(name) && HasProperty(a, name) && HasProperty(b, name);
      if (both && AreDisjoint(a["properties"][name], b["properties"][name], path, depth - 1)) {
        return true;
      }
    }
    return false;
  }

  static bool HasProperty(const OrderedJson& schema, const std::string& name) {
    return schema.contains("properties") && schema["properties"].is_object() &&
           schema["properties"].contains(name);
  }

  static std::set<std::string> Required(const OrderedJson& schema, const std::string& path) {
    std::set<std::string> names;
    if (!schema.contains("required")) return names;
    const OrderedJson& list = schema["required"];
    if (!list.is_array()) Refuse(path, "required", list, "an array of strings");
    for (const OrderedJson& name : list) {
      if (!name.is_string()) Refuse(path, "required", list, "an array of strings");
      names.insert(name.get<std::string>());
    }
    return names;
  }

  Expression OfType(const std::string& type, const OrderedJson& schema, const std::string& path) {
    if (type == "string") return StringOf(schema, path);
    if (type == "object") return ObjectOf(schema, path);
    if (type == "array") return ArrayOf(schema, path);
    if (type == "null") return e_.Literal("null");
    if (type == "boolean") return e_.Choice({e_.Literal("true"), e_.Literal("false")});
    return NumberOf(schema, path, type == "integer");
  }

  // A count such as minLength; absent if the keyword is.
  static std::optional<int32_t> Count(const OrderedJson& schema, const std::string& key,
                                      const std::string& path) {
    if (!schema.contains(key)) return std::nullopt;
    const OrderedJson& value = schema[key];
    const double count = value.is_number() ? value.get<double>() : -1;
    if (count < 0 || count != std::trunc(count)) Refuse(path, key, value, "an integer, at least 0");
    if (count > kMaxRepeats) {
      Refuse(path, key, value, "at most " + std::to_string(kMaxRepeats));
    }
    return static_cast<int32_t>(count);
  }

  // Strings and numbers.

  Expression StringOf(const OrderedJson& schema, const std::string& path) {
    return json_.Quoted(Content(schema, path));
  }

  Expression Content(const OrderedJson& schema, const std::string& path) {
    const int32_t min = Count(schema, "minLength", path).value_or(0);
    const int32_t max = Count(schema, "maxLength", path).value_or(Expressions::kUnbounded);
    const bool has_length = min > 0 || max != Expressions::kUnbounded;
    const char* const key = schema.contains("pattern") ? "pattern" : "format";
    if (!schema.contains(key)) return e_.Repeat(json_.Character(), min, max);
    const OrderedJson& value = schema[key];
    if (!value.is_string()) Refuse(path, key, value, "a string");
    if (has_length) {
      Fail(PathOf(path, key), "is not supported together with minLength or maxLength");
    }
    std::string pattern = value.get<std::string>();
    if (std::string_view(key) == "pattern" && schema.contains("format")) {
      Fail(PathOf(path, "format"), "is not supported together with pattern");
    }
    if (std::string_view(key) == "format") {
      const auto known = FormatPattern(pattern);
      if (!known) {
        Fail(PathOf(path, key),
             "is " + Quoted(pattern) + ", which is not supported; allowed: " + FormatNames());
      }
      pattern = *known;
    }
    try {
      return ParsePattern(e_, json_, pattern);
    } catch (const GrammarError& error) {
      Fail(PathOf(path, key), error.what());
    }
  }

  // The number of a keyword, as a decimal without exponent.
  static std::string Decimal(const OrderedJson& schema, const std::string& key,
                             const std::string& path) {
    const OrderedJson& value = schema[key];
    if (!value.is_number()) Refuse(path, key, value, "a number");
    if (value.is_number_integer()) return value.dump();
    const double number = value.get<double>();
    if (std::abs(number) > 1e30 || (number != 0 && std::abs(number) < 1e-30)) {
      Refuse(path, key, value, "0, or numbers between 1e-30 and 1e30");
    }
    char digits[128];
    const auto end =
        std::to_chars(digits, digits + sizeof(digits), number, std::chars_format::fixed).ptr;
    return {digits, end};
  }

  Expression NumberOf(const OrderedJson& schema, const std::string& path, bool integer) {
    std::optional<DecimalBound> low, high;
    if (schema.contains("minimum")) low = {Decimal(schema, "minimum", path), false};
    if (schema.contains("maximum")) high = {Decimal(schema, "maximum", path), false};
    if (schema.contains("exclusiveMinimum")) {
      const DecimalBound bound = {Decimal(schema, "exclusiveMinimum", path), true};
      if (!low || schema["exclusiveMinimum"] >= schema["minimum"]) low = bound;
    }
    if (schema.contains("exclusiveMaximum")) {
      const DecimalBound bound = {Decimal(schema, "exclusiveMaximum", path), true};
      if (!high || schema["exclusiveMaximum"] <= schema["maximum"]) high = bound;
    }
    if (schema.contains("multipleOf")) return MultipleOf(schema, path, low || high);
    if (low || high) return NumberBetween(e_, low, high, integer);
    return integer ? json_.Integer() : json_.Number();
  }

  Expression MultipleOf(const OrderedJson& schema, const std::string& path, bool bounded) {
    const OrderedJson& value = schema["multipleOf"];
    const double divisor = value.is_number() ? value.get<double>() : 0;
    if (divisor < 1 || divisor > kMaxDivisor || divisor != std::trunc(divisor)) {
      Refuse(path, "multipleOf", value, "integers from 1 to " + std::to_string(kMaxDivisor));
    }
    if (bounded) {
      Fail(PathOf(path, "multipleOf"), "is not supported together with minimum or maximum");
    }
    return grammar::MultipleOf(e_, static_cast<int64_t>(divisor));
  }

  // Arrays and objects.

  Expression ArrayOf(const OrderedJson& schema, const std::string& path) {
    const int32_t min = Count(schema, "minItems", path).value_or(0);
    const int32_t max = Count(schema, "maxItems", path).value_or(Expressions::kUnbounded);
    if (schema.contains("uniqueItems") && schema["uniqueItems"] != false && max != 0 && max != 1) {
      Fail(PathOf(path, "uniqueItems"), "is not supported");
    }
    const bool has_items = schema.contains("items");
    std::vector<Expression> prefix;
    if (schema.contains("prefixItems")) {
      const OrderedJson& list = List(schema, "prefixItems", path);
      for (size_t i = 0; i < list.size(); ++i) {
        if (max != Expressions::kUnbounded && std::ssize(prefix) == max) break;
        prefix.push_back(Value(list[i], PathOf(path, "prefixItems", i)));
      }
    }
    const auto fixed = static_cast<int32_t>(prefix.size());
    const bool unbounded = max == Expressions::kUnbounded;
    if (!unbounded && max < min) return e_.Choice({});
    const bool no_more = (has_items && schema["items"] == false) || (!unbounded && max == fixed);
    const Expression item =
        has_items && !no_more ? Value(schema["items"], PathOf(path, "items")) : json_.AnyValue();
    if (no_more && min > fixed) return e_.Choice({});
    if (fixed == 0) {
      return json_.Array(no_more ? e_.Literal("") : json_.List(item, min, max));
    }
    Expression rest = e_.Literal("");
    if (!no_more) {
      rest = e_.Repeat(e_.Sequence({json_.Comma(), item}), std::max(min - fixed, 0),
                       unbounded ? max : max - fixed);
    }
    for (int32_t i = fixed - 1; i >= 0; --i) {
      const Expression one = e_.Sequence({i == 0 ? json_.Space() : json_.Comma(), prefix[i]});
      const Expression more = e_.Sequence({one, rest});
      rest = e_.Rule("items");  // keeps the nesting flat
      e_.Define(rest, i < min ? more : e_.Optional(more));
    }
    return json_.Array(rest);
  }

  struct Property {
    Expression member;
    bool required;
  };

  Expression ObjectOf(const OrderedJson& schema, const std::string& path) {
    std::set<std::string> required = Required(schema, path);
    const OrderedJson none = OrderedJson::object();
    const OrderedJson& properties = schema.contains("properties") ? schema["properties"] : none;
    if (!properties.is_object()) Refuse(path, "properties", properties, "an object");
    std::vector<Property> members;
    std::vector<std::string> names;
    const auto add = [&](const std::string& name, const OrderedJson& of, const std::string& where) {
      names.push_back(name);
      const bool is_required = required.erase(name) > 0;
      if (of == false && !is_required) return;
      members.push_back({json_.Member(Key(name), Value(of, where)), is_required});
    };
    for (const auto& [name, of] : properties.items()) {
      add(name, of, PathOf(PathOf(path, "properties"), name));
    }
    if (schema.contains("patternProperties")) return PatternObject(schema, path, members, names);
    const OrderedJson& more =
        schema.contains("additionalProperties") ? schema["additionalProperties"] : kAny;
    const std::string more_path = PathOf(path, "additionalProperties");
    for (const std::string& name : std::set<std::string>(required)) add(name, more, more_path);
    if (members.empty()) return MapOf(schema, path, names, more);
    CheckCounts(schema, path, members, more == false);
    if (schema.contains("propertyNames")) {
      Fail(PathOf(path, "propertyNames"), "is not supported together with properties");
    }
    std::optional<Expression> others;
    if (more != false) {
      others = json_.Member(json_.KeyExcept(names), Value(more, more_path));
    }
    return json_.Object(Members(members, others));
  }

  // Counts that say no more than the properties.
  void CheckCounts(const OrderedJson& schema, const std::string& path,
                   const std::vector<Property>& members, bool closed) const {
    const auto required = std::count_if(members.begin(), members.end(),
                                        [](const Property& one) { return one.required; });
    if (Count(schema, "minProperties", path).value_or(0) > required) {
      Fail(PathOf(path, "minProperties"), "is not supported together with optional properties");
    }
    const auto max = Count(schema, "maxProperties", path);
    if (max && (!closed || *max < std::ssize(members))) {
      Fail(PathOf(path, "maxProperties"), "is not supported together with optional properties");
    }
  }

  // Objects without members of known names. `names` are forbidden ones.
  Expression MapOf(const OrderedJson& schema, const std::string& path,
                   const std::vector<std::string>& names, const OrderedJson& value) {
    const int32_t min = Count(schema, "minProperties", path).value_or(0);
    const int32_t max = Count(schema, "maxProperties", path).value_or(Expressions::kUnbounded);
    if (max != Expressions::kUnbounded && max < min) return e_.Choice({});
    if (value == false) return min > 0 ? e_.Choice({}) : json_.Object(e_.Literal(""));
    // A repeated key counts once.
    if (min > 1) Fail(PathOf(path, "minProperties"), "is not supported above 1 without properties");
    Expression key = names.empty() ? json_.String() : json_.KeyExcept(names);
    if (schema.contains("propertyNames")) {
      if (!names.empty()) {
        Fail(PathOf(path, "propertyNames"), "is not supported together with properties");
      }
      const OrderedJson is_string = {{"type", "string"}};
      const std::string where = PathOf(path, "propertyNames");
      key = Value(Merged(is_string, schema["propertyNames"], where), where);
    }
    const std::string where = PathOf(path, "additionalProperties");
    return json_.Object(json_.List(json_.Member(key, Value(value, where)), min, max));
  }

  // With one pattern, which no known name matches, and no other members.
  Expression PatternObject(const OrderedJson& schema, const std::string& path,
                           const std::vector<Property>& members,
                           const std::vector<std::string>& names) {
    const std::string where = PathOf(path, "patternProperties");
    const OrderedJson& patterns = schema["patternProperties"];
    if (!patterns.is_object() || patterns.size() != 1) {
      Refuse(path, "patternProperties", patterns, "an object with one pattern");
    }
    if (!schema.contains("additionalProperties") || schema["additionalProperties"] != false) {
      Fail(where, "is not supported without \"additionalProperties\": false");
    }
    for (const char* const key : {"propertyNames", "minProperties", "maxProperties"}) {
      if (schema.contains(key)) {
        Fail(PathOf(path, key), "is not supported together with patternProperties");
      }
    }
    for (const std::string& name : Required(schema, path)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        Fail(PathOf(path, "required"), "names " + Quoted(name) + ", which is not in properties");
      }
    }
    const std::string& pattern = patterns.begin().key();
    const OrderedJson& value = patterns.begin().value();
    std::optional<Expression> content;
    try {
      content = ParsePattern(e_, json_, pattern);
      const auto matches = std::make_shared<Grammar>(Compile(e_, *content));
      for (const std::string& name : names) {
        Matcher matcher(matches);
        if (!matcher.Advance(JsonText::Escaped(name)) || !matcher.MayEnd()) continue;
        Fail(where, "matches the property " + Quoted(name) + ", too, which is not supported");
      }
    } catch (const GrammarError& error) {
      if (!error.path().empty()) throw;
      Fail(where, error.what());
    }
    const Expression others =
        json_.Member(json_.Quoted(*content), Value(value, PathOf(where, pattern)));
    if (members.empty()) return json_.Object(json_.List(others, 0, Expressions::kUnbounded));
    return json_.Object(Members(members, others));
  }

  // The members in their order, then any number of others.
  Expression Members(const std::vector<Property>& members, std::optional<Expression> others) {
    const Expression nothing = e_.Literal("");
    // The rest after a member, and after none.
    Expression after = others ? e_.Star(e_.Sequence({json_.Comma(), *others})) : nothing;
    Expression first = others ? json_.List(*others, 0, Expressions::kUnbounded) : nothing;
    for (size_t i = members.size(); i > 0; --i) {
      const auto& [member, required] = members[i - 1];
      const Expression with = e_.Sequence({json_.Space(), member, after});
      const Expression more = e_.Sequence({json_.Comma(), member, after});
      const auto rule = [&, is_required = required](Expression present, Expression absent) {
        const Expression made = e_.Rule("members");  // keeps the nesting flat
        e_.Define(made, is_required ? present : e_.Choice({present, absent}));
        return made;
      };
      first = rule(with, first);
      after = rule(more, after);
    }
    return first;
  }

  inline static const OrderedJson kAny = true;

  Expressions& e_;
  JsonText json_;
  const OrderedJson& root_;
  std::map<const OrderedJson*, Expression> rules_;
  std::vector<Unbuilt> referenced_;
  std::vector<std::unique_ptr<OrderedJson>> merged_;
  int schemas_ = 0;
  int depth_ = 0;
};

}  // namespace

Expression ParseJsonSchema(Expressions& expressions, std::string_view text) {
  OrderedJson schema;
  try {
    schema = ParseOrderedJson(text, "the schema", kMaxSchemaValues, kMaxSchemaDepth);
  } catch (const LoadError& error) {
    throw GrammarError(std::string("cannot be read: ") + error.what());
  }
  return SchemaCompiler(expressions, schema).Run();
}

Expression AnyJsonObject(Expressions& expressions) { return JsonText(expressions).AnyObject(); }

}  // namespace triptych::grammar
