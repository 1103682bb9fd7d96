#loc1 = loc("x")
#loc2 = loc("w")
module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x3x8x8xf32> loc("x"), %arg1: tensor<4x3x3x3xf32> loc("w")) -> (tensor<1x4x8x8xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x8x8xf32> loc(#loc7)
    return %0 : tensor<1x4x8x8xf32> loc(#loc6)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc3 = loc("make_stablehlo.py":284:15)
#loc4 = loc("make_stablehlo.py":300:14)
#loc5 = loc("jit(f)"(#loc3))
#loc6 = loc("jit(f)"(#loc4))
#loc7 = loc("conv_general_dilated"(#loc5))
