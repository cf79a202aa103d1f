#include "server/grpc/load_report.h"

#include <map>
#include <string>

#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace triptych::server {

void AddLoadReport(const serving::EngineLoad& load, grpc::CallbackServerContext& context) {
  // Names as in /metrics, without the prefix.
  const std::map<std::string, double> metrics = {
      {"kv_cache_utilization_ratio", load.kv_cache_utilization},
      {"requests_running", static_cast<double>(load.running)},
      {"requests_waiting", static_cast<double>(load.waiting)}};
  xds::data::orca::v3::OrcaLoadReport report;
  report.mutable_named_metrics()->insert(metrics.begin(), metrics.end());
  context.AddTrailingMetadata(kLoadReportMetadata, report.SerializeAsString());
}

}  // namespace triptych::server
