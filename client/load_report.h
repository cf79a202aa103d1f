#ifndef TRIPTYCH_CLIENT_LOAD_REPORT_H_
#define TRIPTYCH_CLIENT_LOAD_REPORT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "client/load_generator.h"

namespace triptych::client {

// What came of a load, for people: tables of at most 100 columns. `address` is for the errors.
std::string LoadText(const LoadResults& results, const LoadPace& pace, const std::string& address);

// The same for programs, with the load's options: seconds, bytes, tokens.
nlohmann::ordered_json LoadJson(const LoadResults& results, const WorkloadOptions& options,
                                const LoadPace& pace, const std::string& address);

// One line, without a newline: "12 s: 345 completed, 3 failed, 64 under way, 2,345 tokens/s".
// `before` are the figures before, for the rate.
std::string LoadProgressLine(const LoadProgress& before, const LoadProgress& now);

}  // namespace triptych::client

#endif  // TRIPTYCH_CLIENT_LOAD_REPORT_H_
