// Every op as a free function of Values: for users, and for rooms that build gradients from other rooms.
#pragma once

#include <belfry/ops/add_n/add_n.h>
#include <belfry/ops/argmax/argmax.h>
#include <belfry/ops/batch_norm/batch_norm.h>
#include <belfry/ops/binary/binary.h>
#include <belfry/ops/broadcast_like/broadcast_like.h>
#include <belfry/ops/cast/cast.h>
#include <belfry/ops/compare/compare.h>
#include <belfry/ops/conv2d/conv2d.h>
#include <belfry/ops/finite/finite.h>
#include <belfry/ops/gather/gather.h>
#include <belfry/ops/identity/identity.h>
#include <belfry/ops/matmul/matmul.h>
#include <belfry/ops/max_pool2d/max_pool2d.h>
#include <belfry/ops/one_hot/one_hot.h>
#include <belfry/ops/random/random.h>
#include <belfry/ops/reduce/reduce.h>
#include <belfry/ops/reshape/reshape.h>
#include <belfry/ops/row_count/row_count.h>
#include <belfry/ops/softmax/softmax.h>
#include <belfry/ops/softmax_cross_entropy/softmax_cross_entropy.h>
#include <belfry/ops/source/source.h>
#include <belfry/ops/tower_mean/tower_mean.h>
#include <belfry/ops/transpose/transpose.h>
#include <belfry/ops/unary/unary.h>
