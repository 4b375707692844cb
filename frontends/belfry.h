// Everything that a program of its user needs.
#pragma once

#include <belfry/frontends/builder/builder.h>
#include <belfry/frontends/data/digits.h>
#include <belfry/frontends/data/mnist.h>
#include <belfry/frontends/nn/attention.h>
#include <belfry/frontends/nn/layers.h>
#include <belfry/frontends/nn/norms.h>
#include <belfry/frontends/session/check_op.h>
#include <belfry/frontends/session/session.h>
#include <belfry/frontends/state/safetensors.h>
#include <belfry/frontends/train/fit.h>
#include <belfry/frontends/train/run_folder.h>
