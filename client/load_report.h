// Reports of a load's results.
#ifndef TRIPTYCH_CLIENT_LOAD_REPORT_H_
#define TRIPTYCH_CLIENT_LOAD_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "client/load_generator.h"

namespace triptych::client {

// The results as tables of at most 100 columns. `address` appears in the errors.
std::string LoadText(const LoadResults& results, const LoadPace& pace, const std::string& address);

// The results and the load's options as JSON, in seconds, bytes and tokens.
nlohmann::ordered_json LoadJson(const LoadResults& results, const WorkloadOptions& options,
                                const LoadPace& pace, const std::string& address);

// One line, without a newline: "12 s: 345 completed, 3 failed, 64 in flight, 2,345 tokens/s".
// `before`: the previous progress, for the rate.
std::string LoadProgressLine(const LoadProgress& before, const LoadProgress& now);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_LOAD_REPORT_H_
