/* erf_inv.h - coefficients of the inverse of erf in f32, as XLA has it: M. Giles, "Approximating the erfinv function",
 * 2010. x times a polynomial: with w = -log(1 - x^2), for w < 5 the first one, of w - 2.5, else the other one, of
 * sqrt(w) - 3. The first term is that of the highest power. */
#pragma once

enum { CLV_ERF_INV_TERMS = 9 };

static const float clv_erf_inv_centre[CLV_ERF_INV_TERMS] = {2.81022636e-08f,  3.43273939e-07f, -3.5233877e-06f,
                                                            -4.39150654e-06f, 0.00021858087f,  -0.00125372503f,
                                                            -0.00417768164f,  0.246640727f,    1.50140941f};
static const float clv_erf_inv_tails[CLV_ERF_INV_TERMS] = {-0.000200214257f, 0.000100950558f, 0.00134934322f,
                                                           -0.00367342844f,  0.00573950773f,  -0.0076224613f,
                                                           0.00943887047f,   1.00167406f,     2.83297682f};
