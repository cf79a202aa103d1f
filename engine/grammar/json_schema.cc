#include "engine/grammar/json_schema.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/grammar/error.h"
#include "engine/grammar/limits.h"
#include "engine/grammar/merge_schemas.h"
#include "engine/grammar/schema_compiler.h"
#include "engine/grammar/schema_keywords.h"
#include "engine/grammar/schema_references.h"

namespace triptych::grammar {
namespace {

constexpr size_t kMaxSchemaValues = size_t{1} << 16;
constexpr size_t kMaxSchemaDepth = 64;
constexpr int kMaxSchemas = 20'000;  // compiled ones, copies that joining makes included

}  // namespace

Expression SchemaCompiler::Run() {
  const Expression start = Referenced("#", root_);
  while (!referenced_.empty()) {
    const auto [rule, schema, path] = referenced_.back();
    referenced_.pop_back();
    e_.Define(rule, Value(*schema, path));
  }
  return start;
}

Expression SchemaCompiler::Referenced(const std::string& path, const OrderedJson& schema) {
  const auto [found, added] = rules_.try_emplace(&schema);
  if (added) {
    found->second = e_.Rule("schema");
    referenced_.push_back({found->second, &schema, path == "#" ? "" : path});
  }
  return found->second;
}

const OrderedJson& SchemaCompiler::Merged(const OrderedJson& a, const OrderedJson& b,
                                          const std::string& path) {
  try {
    merged_.push_back(std::make_unique<OrderedJson>(
        MergeSchemas(a, b, [&](const std::string& reference) -> const OrderedJson& {
          return ResolveReference(root_, reference, path);
        })));
  } catch (const GrammarError& error) {
    if (error.path().starts_with(path) && !path.empty()) throw;
    FailAt(path + error.path(), error.what());
  }
  return *merged_.back();
}

Expression SchemaCompiler::Value(const OrderedJson& schema, const std::string& path) {
  if (++schemas_ > kMaxSchemas) FailAt(path, "needs too many schemas to be compiled");
  if (schema.is_boolean()) return schema == true ? json_.AnyValue() : e_.Choice({});
  if (!schema.is_object()) {
    FailAt(path, "is no schema; allowed: an object, true, false");
  }
  if (++depth_ > kMaxNesting) FailAt(path, "is nested too deeply");
  CheckKeywords(schema, path);
  const Expression value = ObjectSchema(schema, path);
  --depth_;
  return value;
}

Expression SchemaCompiler::ObjectSchema(const OrderedJson& schema, const std::string& path) {
  if (schema.contains("$ref")) {
    const OrderedJson& reference = schema["$ref"];
    if (!reference.is_string()) RefuseKeyword(path, "$ref", reference, "a string");
    const OrderedJson& target = ResolveReference(root_, reference.get<std::string>(), path);
    const OrderedJson rest = Without(schema, "$ref");
    if (!SaysNothing(rest)) return Value(Merged(rest, target, path), path);
    return Referenced(PathOf(path, "$ref"), target);
  }
  if (schema.contains("allOf")) {
    const OrderedJson& all = ListOf(schema, "allOf", path);
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
  for (const std::string& type : TypesOf(schema, path)) {
    choices.push_back(OfType(type, schema, path));
  }
  return e_.Choice(std::move(choices));
}

const OrderedJson& SchemaCompiler::Keep(OrderedJson schema) {
  return *merged_.emplace_back(std::make_unique<OrderedJson>(std::move(schema)));
}

Expression SchemaCompiler::OfType(const std::string& type, const OrderedJson& schema,
                                  const std::string& path) {
  if (type == "string") return StringOf(schema, path);
  if (type == "object") return ObjectOf(schema, path);
  if (type == "array") return ArrayOf(schema, path);
  if (type == "null") return e_.Literal("null");
  if (type == "boolean") return e_.Choice({e_.Literal("true"), e_.Literal("false")});
  return NumberOf(schema, path, type == "integer");
}

Expression ParseJsonSchema(Expressions& expressions, std::string_view text) {
  OrderedJson schema;
  try {
    schema = ParseOrderedJson(text, "the schema", kMaxSchemaValues, kMaxSchemaDepth);
  } catch (const LoadError& error) {
    throw GrammarError(std::string("cannot be read: ") + error.what());
  }
  if (schema.is_object()) schema.erase("$id");  // it may only name the whole
  return SchemaCompiler(expressions, schema).Run();
}

Expression AnyJsonObject(Expressions& expressions) { return JsonText(expressions).AnyObject(); }

}  // namespace triptych::grammar
