#include <belfry/graph/host_tensor.h>

#include <algorithm>

namespace belfry {

HostTensor converted(const HostTensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  HostTensor out(dtype, tensor.shape());
  visit_stored(tensor.dtype(), [&]<class From>() {
    auto from = tensor.data<From>();
    visit_stored(dtype, [&]<class To>() {
      std::transform(from.begin(), from.end(), out.data<To>().begin(), [](From x) { return static_cast<To>(x); });
    });
  });
  return out;
}

}  // namespace belfry
