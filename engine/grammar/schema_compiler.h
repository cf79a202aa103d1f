// Compiler of JSON Schemas to expressions.
#ifndef TRIPTYCH_ENGINE_GRAMMAR_SCHEMA_COMPILER_H_
#define TRIPTYCH_ENGINE_GRAMMAR_SCHEMA_COMPILER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/grammar/expressions.h"
#include "engine/grammar/json_number.h"
#include "engine/grammar/json_text.h"
#include "engine/grammar/limits.h"

namespace triptych::grammar {

// Functions that take a schema and its path make the expression of the JSON texts that it accepts.
// They throw GrammarError as ParseJsonSchema does. The expressions and `root` must outlive it.
class SchemaCompiler {
 public:
  SchemaCompiler(Expressions& expressions, const OrderedJson& root)
      : e_(expressions), json_(expressions), root_(root) {}

  // The expression of the whole schema. Called once.
  Expression Run();

 private:
  struct Unbuilt {
    Expression rule;
    const OrderedJson* schema;
    std::string path;
  };
  struct Property {
    Expression member;
    bool required;
  };
  struct Counts {
    int32_t min = 0, max = Expressions::kUnbounded;
  };

  // json_schema.cc: values of any kind.
  Expression Value(const OrderedJson& schema, const std::string& path);
  Expression ObjectSchema(const OrderedJson& schema, const std::string& path);
  Expression OfType(const std::string& type, const OrderedJson& schema, const std::string& path);
  // The rule of a schema that references name.
  Expression Referenced(const std::string& path, const OrderedJson& schema);
  // Both schemas, as one that stays in place.
  const OrderedJson& Merged(const OrderedJson& a, const OrderedJson& b, const std::string& path);
  const OrderedJson& Keep(OrderedJson schema);

  // schema_alternatives.cc
  Expression Alternatives(const OrderedJson& schema, const std::string& key,
                          const std::string& path);
  // True if it is certain that no value fits both schemas.
  bool AreDisjoint(const OrderedJson& a, const OrderedJson& b, const std::string& path, int depth);
  Expression Constants(const OrderedJson& schema, const std::string& path);
  Expression Constant(const OrderedJson& value);
  Expression Key(const std::string& text);

  // schema_scalars.cc: strings and numbers.
  Expression StringOf(const OrderedJson& schema, const std::string& path);
  // A string without its quotation marks.
  Expression Content(const OrderedJson& schema, const std::string& path);
  // The texts that fit both, a pattern and the one of a format.
  Expression PatternOfFormat(const std::string& pattern, const std::string& format);
  Expression NumberOf(const OrderedJson& schema, const std::string& path, bool integer);
  Expression MultipleOf(const OrderedJson& schema, const std::string& path,
                        const std::optional<DecimalBound>& low,
                        const std::optional<DecimalBound>& high, bool integer);

  // schema_containers.cc: arrays and objects.
  Expression ArrayOf(const OrderedJson& schema, const std::string& path);
  // With uniqueItems.
  Expression UniqueArray(const OrderedJson& schema, const std::string& path, int32_t min,
                         int32_t max);
  Expression ObjectOf(const OrderedJson& schema, const std::string& path);
  // minProperties and maxProperties as far as they say more than the properties. `closed`: there
  // are no other members.
  Counts CountsOf(const OrderedJson& schema, const std::string& path,
                  const std::vector<Property>& members, bool closed) const;
  // Objects without members of known names. `names` are forbidden ones.
  Expression MapOf(const OrderedJson& schema, const std::string& path,
                   const std::vector<std::string>& names, const OrderedJson& value);
  // With patterns, of which a name matches at most one and known names none, and no other members.
  Expression PatternObject(const OrderedJson& schema, const std::string& path,
                           const std::vector<Property>& members,
                           const std::vector<std::string>& names);
  // The members in their order, then any number of others; as many together as `counts` says.
  Expression Members(const std::vector<Property>& members, std::optional<Expression> others,
                     const Counts& counts);

  Expressions& e_;
  JsonText json_;
  const OrderedJson& root_;
  std::map<const OrderedJson*, Expression> rules_;
  std::vector<Unbuilt> referenced_;
  std::vector<std::unique_ptr<OrderedJson>> merged_;
  std::map<std::pair<std::string, std::string>, Expression> common_;  // of pattern and format
  size_t comparisons_ = kMaxComparisons;                              // work that is left
  size_t readings_ = kMaxReadingSteps;                                // likewise, of CheckReadings
  int schemas_ = 0;
  int depth_ = 0;
};

}  // namespace triptych::grammar

#endif  // TRIPTYCH_ENGINE_GRAMMAR_SCHEMA_COMPILER_H_
