// Chat templates: Jinja as the library transformers renders it.
#ifndef TRIPTYCH_ENGINE_JINJA_TEMPLATE_H_
#define TRIPTYCH_ENGINE_JINJA_TEMPLATE_H_

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/jinja/error.h"
#include "engine/jinja/limits.h"
#include "engine/jinja/syntax.h"
#include "engine/jinja/text.h"
#include "engine/jinja/value.h"

namespace triptych::jinja {

// A parsed template. It has transformers' environment: Jinja's immutable sandbox with trim_blocks,
// lstrip_blocks and loop controls; tojson without escapes of HTML; raise_exception, strftime_now
// and generation blocks. It lacks tags that read other templates. Immutable and thread-safe.
class Template {
 public:
  // Throws SyntaxError, also for a filter or test that is not known, except within if statements.
  // Some 500 bytes of memory for each token, of which there are at most 2^17.
  explicit Template(std::string_view text);

  // `now` is the time of strftime_now. Throws RenderError.
  Text Render(const Variables& variables, const Limits& limits, std::time_t now) const;

 private:
  const Block block_;
};

}  // namespace triptych::jinja

#endif  // TRIPTYCH_ENGINE_JINJA_TEMPLATE_H_
