/* y = x divided by its root mean square */
#include <math.h>

void run(const float *x, float *y, int n) {
    float squares = 0;
    for (int i = 0; i < n; i++)
        squares += x[i] * x[i];
    const float scale = 1 / sqrtf(squares / (float)n + 1e-6f);
    for (int i = 0; i < n; i++)
        y[i] = x[i] * scale;
}
