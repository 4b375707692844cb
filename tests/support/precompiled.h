// Heavy headers of the op tests, compiled once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "op_case.h"
