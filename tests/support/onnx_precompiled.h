// The heavy header of the ONNX cases, compiled once.
#include "onnx_case.h"
