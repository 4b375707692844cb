// Optimisers as options of Builder::minimize: which update each variable gets. The formulas stand in ops/optimizer/optimizer.h.
#pragma once

#include <string>

#include <belfry/graph/value.h>

namespace belfry {

/// A learning rate: a number, or a scalar Value such as a schedule of the step (ops/schedule/schedule.h).
struct Rate {
  Rate(double n) : number(n) {}
  Rate(Value v);  ///< UserError for an empty one
  double number = 0;
  Value value = {};
};

// Fields are the options of a kind in files too, under the same names. `weight_decay` is decoupled: the variable shrinks by the learning rate
// times it before its update, whatever the gradient (Loshchilov & Hutter 2017); for a penalty in the loss see Builder::l2_penalty.

/// w − rate·g.
struct Sgd {
  Rate learning_rate = 0.01;
  double weight_decay = 0;
};

/// m = momentum·m + g; w − rate·m, or with nesterov w − rate·(g + momentum·m) (Sutskever et al. 2013, as TensorFlow has it).
struct Momentum {
  Rate learning_rate = 0.01;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
};

/// rate·√(1 − beta2ᵗ)/(1 − beta1ᵗ)·m/(√v + epsilon) (Kingma & Ba 2014). `powers`: how the correction is taken, "float32" as Keras 3 does
/// or "exact" as TensorFlow 1, whose epsilon is 1e-8. amsgrad: with the greatest v so far (Reddi et al. 2018).
struct Adam {
  Rate learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-7;
  std::string powers = "float32";
  bool amsgrad = false;
  double weight_decay = 0;
};

/// Adam with decoupled weight decay (Loshchilov & Hutter 2017). Its slots are called as Adam's.
struct AdamW {
  Rate learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-7;
  std::string powers = "float32";
  bool amsgrad = false;
  double weight_decay = 0.004;
};

/// Adam by the greatest |g|, decayed, in place of √v (Kingma & Ba 2014, section 7.1).
struct Adamax {
  Rate learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-7;
  std::string powers = "float32";
  double weight_decay = 0;
};

/// rate·g/√(v + epsilon), v the decayed mean of g² (Hinton 2012); centered: less the square of the mean gradient; momentum: of these steps. `initial`: how v
/// begins. Keras 3: as here; TensorFlow 1: epsilon 1e-10, initial 1; Keras 2 without momentum, and PyTorch: epsilon_inside false.
struct Rmsprop {
  Rate learning_rate = 1e-3;
  double rho = 0.9, momentum = 0;
  bool centered = false;
  double epsilon = 1e-7;
  bool epsilon_inside = true;  ///< √(v + epsilon), else √v + epsilon
  double initial = 0;
  double weight_decay = 0;
};

/// rate·g/√(sum + epsilon), sum of all g² and `initial` (Duchi et al. 2011). Keras 3: as here; TensorFlow 1: epsilon 0; Keras 2: epsilon_inside false.
struct Adagrad {
  Rate learning_rate = 1e-3;
  double initial = 0.1, epsilon = 1e-7;
  bool epsilon_inside = true;
  double weight_decay = 0;
};

/// g/√v, scaled for each variable to its root mean square (at least epsilon2) and to clip_threshold, v decayed by 1 − t^beta2_decay and from rank 2 on kept as the means
/// of its rows and columns alone (Shazeer & Stern 2018). The rate is at most 1/√t, whence Keras's relative_step changes nothing.
struct Adafactor {
  Rate learning_rate = 1e-3;
  double beta2_decay = -0.8, epsilon1 = 1e-30, epsilon2 = 1e-3, clip_threshold = 1;
  double weight_decay = 0;
};

/// √(u + epsilon)/√(v + epsilon)·g, u the decayed mean of the squared steps (Zeiler 2012; there the rate is 1).
struct Adadelta {
  Rate learning_rate = 1e-3;
  double rho = 0.95, epsilon = 1e-7;
  double weight_decay = 0;
};

/// Follow the regularised leader (McMahan et al. 2013), for sparse linear models; the rate must never be 0. `power` is that of the rate, `initial` what the sum of g²
/// begins with; l1, l2: penalties; l2_shrinkage: added to the gradient alone.
struct Ftrl {
  Rate learning_rate = 1e-3;
  double power = -0.5, initial = 0.1, l1 = 0, l2 = 0, l2_shrinkage = 0, beta = 0;
  double weight_decay = 0;
};

/// rate·sign(beta1·m + (1 − beta1)g) (Chen et al. 2023).
struct Lion {
  Rate learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
};

/// Adam's direction, with weight decay, scaled for each variable to the variable's own norm (You et al. 2019).
struct Lamb {
  Rate learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-7;
  std::string powers = "float32";
  double weight_decay = 0;
};

}  // namespace belfry
