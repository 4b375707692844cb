#include <belfry/frontends/builder/builder.h>

namespace belfry {

Rate::Rate(Value value) : value(value) {
  if (!value) throw UserError("a learning rate is an empty Value");
}

Optimizer::Optimizer(const Sgd& o) : kind("sgd"), learning_rate(o.learning_rate), options{{"weight_decay", o.weight_decay}} {}
Optimizer::Optimizer(const Momentum& o) : kind("momentum"), learning_rate(o.learning_rate), options{{"momentum", o.momentum}, {"nesterov", o.nesterov}, {"weight_decay", o.weight_decay}} {}
Optimizer::Optimizer(const Adam& o)
    : kind("adam"), learning_rate(o.learning_rate),
      options{{"beta1", o.beta1}, {"beta2", o.beta2}, {"epsilon", o.epsilon}, {"powers", o.powers}, {"amsgrad", o.amsgrad}, {"weight_decay", o.weight_decay}} {}
Optimizer::Optimizer(const AdamW& o)
    : kind("adamw"), learning_rate(o.learning_rate),
      options{{"beta1", o.beta1}, {"beta2", o.beta2}, {"epsilon", o.epsilon}, {"powers", o.powers}, {"amsgrad", o.amsgrad}, {"weight_decay", o.weight_decay}} {}
Optimizer::Optimizer(const Adamax& o)
    : kind("adamax"), learning_rate(o.learning_rate), options{{"beta1", o.beta1}, {"beta2", o.beta2}, {"epsilon", o.epsilon}, {"powers", o.powers}, {"weight_decay", o.weight_decay}} {}
Optimizer::Optimizer(const Rmsprop& o)
    : kind("rmsprop"), learning_rate(o.learning_rate),
      options{{"rho", o.rho}, {"momentum", o.momentum}, {"centered", o.centered}, {"epsilon", o.epsilon}, {"epsilon_inside", o.epsilon_inside}, {"initial", o.initial},
              {"weight_decay", o.weight_decay}} {}
Optimizer::Optimizer(const Adafactor& o)
    : kind("adafactor"), learning_rate(o.learning_rate),
      options{{"beta2_decay", o.beta2_decay}, {"epsilon1", o.epsilon1}, {"epsilon2", o.epsilon2}, {"clip_threshold", o.clip_threshold}, {"weight_decay", o.weight_decay}} {}
Optimizer::Optimizer(const Adagrad& o)
    : kind("adagrad"), learning_rate(o.learning_rate), options{{"initial", o.initial}, {"epsilon", o.epsilon}, {"epsilon_inside", o.epsilon_inside}, {"weight_decay", o.weight_decay}} {}
Optimizer::Optimizer(const Adadelta& o) : kind("adadelta"), learning_rate(o.learning_rate), options{{"rho", o.rho}, {"epsilon", o.epsilon}, {"weight_decay", o.weight_decay}} {}
Optimizer::Optimizer(const Ftrl& o)
    : kind("ftrl"), learning_rate(o.learning_rate),
      options{{"power", o.power}, {"initial", o.initial}, {"l1", o.l1}, {"l2", o.l2}, {"l2_shrinkage", o.l2_shrinkage}, {"beta", o.beta}, {"weight_decay", o.weight_decay}} {}
Optimizer::Optimizer(const Lion& o) : kind("lion"), learning_rate(o.learning_rate), options{{"beta1", o.beta1}, {"beta2", o.beta2}, {"weight_decay", o.weight_decay}} {}
Optimizer::Optimizer(const Lamb& o)
    : kind("lamb"), learning_rate(o.learning_rate), options{{"beta1", o.beta1}, {"beta2", o.beta2}, {"epsilon", o.epsilon}, {"powers", o.powers}, {"weight_decay", o.weight_decay}} {}

}  // namespace belfry
