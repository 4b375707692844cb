// Evaluation with the moving averages of the variables in place of the variables.
#pragma once

#include <belfry/frontends/session/session.h>

namespace belfry {

/// UserError where the graph keeps no averages.
void check_averages(const Session& session);

/// While it lives, each variable that has a moving average holds that instead: for `predict`, `run` and `evaluate`. Nothing may be trained or
/// loaded meanwhile: at the end the variables are again what they were. A session that was moved from meanwhile keeps the averages.
class AveragesInPlace {
 public:
  /// UserError where the graph keeps no averages.
  explicit AveragesInPlace(Session& session);
  ~AveragesInPlace();
  AveragesInPlace(const AveragesInPlace&) = delete;
  AveragesInPlace& operator=(const AveragesInPlace&) = delete;

 private:
  Session& session_;
  State before_;
};

}  // namespace belfry
