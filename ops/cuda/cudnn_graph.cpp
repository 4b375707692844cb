#if __has_include(<cudnn.h>)
#include <fmt/format.h>

#include <belfry/graph/error.h>
#include <belfry/ops/cuda/cudnn_api_internal.h>

namespace belfry::cudnn {

namespace {

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::boolean: return CUDNN_DATA_BOOLEAN;
    case DType::i32: return CUDNN_DATA_INT32;
    case DType::i64: return CUDNN_DATA_INT64;
    default: wrong_dtype(dtype, "one of cuDNN's");
  }
}

Descriptor tensor(const Api& api, const Tensor& t, std::int64_t id) {
  Descriptor d(api, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  cudnnDataType_t type = type_of(t.dtype);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, t.dims);
  d.set(CUDNN_ATTR_TENSOR_STRIDES, t.strides);
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
  if (t.inner) d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (t.value) d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  d.finalize();
  return d;
}

/// For gradients by earlier ones NVIDIA's own frontend pads keys whose number is no multiple of 128, around a fault.
constexpr std::size_t kFirstRightAttention = 91600;

/// Makes the operations of a graph from its tensors. What they compute in is f32, but for tensors of f64.
struct Maker {
  const Api& api;
  std::vector<Descriptor> tensors;
  cudnnDataType_t compute;
  bool halves = false;

  using Names = std::vector<cudnnBackendAttributeName_t>;
  void set_tensors(Descriptor& d, const Operation& o, const Names& names) {
    if (o.tensors.size() != names.size()) throw InternalError(fmt::format("an operation for cuDNN has {} tensors, not {}", o.tensors.size(), names.size()));
    for (std::size_t i = 0; i < names.size(); ++i) d.set(names[i], tensors[o.tensors[i]]);
  }

  /// A double beside results in f32 is taken without a word, and its first half read.
  void scale(Descriptor& d, cudnnBackendAttributeName_t name, float by) {
    if (compute == CUDNN_DATA_DOUBLE) d.set(name, double{by});
    else d.set(name, CUDNN_TYPE_FLOAT, 1, &by);
  }

  Descriptor convolution(const Operation& o, cudnnBackendDescriptorType_t type, const Names& names, cudnnBackendAttributeName_t window, cudnnBackendAttributeName_t alpha,
                         cudnnBackendAttributeName_t beta) {
    Descriptor w(api, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    w.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    w.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    w.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2});
    w.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, o.window.strides);
    w.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, o.window.before);
    w.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, o.window.after);
    w.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, o.window.dilations);
    w.finalize();
    Descriptor d(api, type);
    set_tensors(d, o, names);
    d.set(window, w);
    scale(d, alpha, 1);
    scale(d, beta, 0);
    d.finalize();
    return d;
  }

  Descriptor matmul(const Operation& o) {
    const std::size_t version = api.cudnnGetVersion();
    if (version < kFirstRightAttention)
      throw DeviceError(fmt::format("cuDNN {}.{}.{} has a fault in attention; install 9.16 or a later 9, or have the plan name nvrtc_attention{}", version / 10000, version % 10000 / 100, version % 100, halves ? "_in_f32" : ""));
    Descriptor m(api, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    m.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    m.finalize();
    Descriptor d(api, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_tensors(d, o, {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC});
    d.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    d.finalize();
    return d;
  }

  Descriptor reduction(const Operation& o, cudnnReduceTensorOp_t by) {
    Descriptor r(api, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    r.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    r.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by);
    r.finalize();
    Descriptor d(api, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_tensors(d, o, {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC});
    d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
    d.finalize();
    return d;
  }

  Descriptor reshape(const Operation& o) {
    Descriptor d(api, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_tensors(d, o, {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC});
    d.finalize();
    return d;
  }

  Descriptor pointwise(const Operation& o, cudnnPointwiseMode_t mode, const Names& names) {
    Descriptor p(api, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnDataType_t in = mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : compute;
    p.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    p.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &in);
    if (mode == CUDNN_POINTWISE_GEN_INDEX) p.set(CUDNN_ATTR_POINTWISE_AXIS, o.axis);
    p.finalize();
    Descriptor d(api, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    set_tensors(d, o, names);
    d.finalize();
    return d;
  }

  Descriptor resample(const Operation& o, cudnnResampleMode_t mode, bool backward) {
    Descriptor r(api, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    cudnnPaddingMode_t padding = mode == CUDNN_RESAMPLE_MAXPOOL ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD;
    cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    auto fractions = [](const Extents& sizes) {
      std::vector<cudnnFraction_t> out;
      for (std::int64_t n : sizes) out.push_back({n, 1});
      return out;
    };
    r.set(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, 1, &mode);
    r.set(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    r.set(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, std::int64_t{2});
    r.set(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_FRACTION, 2, fractions(o.window.size).data());
    r.set(CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_FRACTION, 2, fractions(o.window.strides).data());
    r.set(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_FRACTION, 2, fractions(o.window.before).data());
    r.set(CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_FRACTION, 2, fractions(o.window.after).data());
    r.set(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, 1, &padding);
    r.set(CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
    r.finalize();
    Descriptor d(api, backward ? CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR : CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    if (backward) set_tensors(d, o, {CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC});
    else set_tensors(d, o, {CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC});
    d.set(backward ? CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC : CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, r);
    d.finalize();
    return d;
  }

  Descriptor norm(const Operation& o, bool backward) {
    cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
    Descriptor d(api, backward ? CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR : CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    d.set(backward ? CUDNN_ATTR_OPERATION_NORM_BWD_MODE : CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode);
    if (backward) {
      set_tensors(d, o, {CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC,
                         CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC});
    } else {
      d.set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase);
      set_tensors(d, o, {CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC,
                         CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC,
                         CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC,
                         CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC});
    }
    d.finalize();
    return d;
  }

  Descriptor operation(const Operation& o) {
    const Names one = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
    const Names two = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
    const Names select = {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC};
    switch (o.kind) {
      case Kind::conv:
        return convolution(o, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                           {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
                           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
      case Kind::conv_input_gradient:
        return convolution(o, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                           {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
      case Kind::conv_filter_gradient:
        return convolution(o, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                           {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
                           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
      case Kind::matmul: return matmul(o);
      case Kind::add: return pointwise(o, CUDNN_POINTWISE_ADD, two);
      case Kind::sub: return pointwise(o, CUDNN_POINTWISE_SUB, two);
      case Kind::mul: return pointwise(o, CUDNN_POINTWISE_MUL, two);
      case Kind::div: return pointwise(o, CUDNN_POINTWISE_DIV, two);
      case Kind::sqrt: return pointwise(o, CUDNN_POINTWISE_SQRT, one);
      case Kind::reciprocal: return pointwise(o, CUDNN_POINTWISE_RECIPROCAL, one);
      case Kind::identity: return pointwise(o, CUDNN_POINTWISE_IDENTITY, one);
      case Kind::exp: return pointwise(o, CUDNN_POINTWISE_EXP, one);
      case Kind::log: return pointwise(o, CUDNN_POINTWISE_LOG, one);
      case Kind::index: return pointwise(o, CUDNN_POINTWISE_GEN_INDEX, one);
      case Kind::at_least: return pointwise(o, CUDNN_POINTWISE_CMP_GE, two);
      case Kind::select: return pointwise(o, CUDNN_POINTWISE_BINARY_SELECT, select);
      case Kind::max_over: return reduction(o, CUDNN_REDUCE_TENSOR_MAX);
      case Kind::sum_over: return reduction(o, CUDNN_REDUCE_TENSOR_ADD);
      case Kind::reshape: return reshape(o);
      case Kind::max_pool: return resample(o, CUDNN_RESAMPLE_MAXPOOL, false);
      case Kind::avg_pool: return resample(o, CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING, false);
      case Kind::avg_pool_gradient: return resample(o, CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING, true);
      case Kind::batch_norm: return norm(o, false);
      case Kind::batch_norm_gradient: return norm(o, true);
    }
    throw InternalError("no such operation of cuDNN");
  }
};

}  // namespace

std::optional<Descriptor> operation_graph(const TargetImpl& target, const Graph& graph, std::string& why) try {
  Maker make{target.api, {}, CUDNN_DATA_FLOAT};
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    make.tensors.push_back(tensor(target.api, graph.tensors[i], static_cast<std::int64_t>(i) + 1));
    if (graph.tensors[i].dtype == f64) make.compute = CUDNN_DATA_DOUBLE;
    make.halves |= is_half(graph.tensors[i].dtype);
  }
  std::vector<Descriptor> operations;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Operation& o : graph.operations) {
    operations.push_back(make.operation(o));
    raw.push_back(operations.back().raw());
  }
  Descriptor d(target.api, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(raw.size()), raw.data());
  if (target.handle) d.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  d.finalize();
  return d;
} catch (const DeviceError& e) {
  why = e.what();
  return {};
}

}  // namespace belfry::cudnn
#endif
