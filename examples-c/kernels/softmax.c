/* y = softmax(x), with the maximum taken out first */
#include <math.h>

void run(const float *x, float *y, int n) {
    float top = x[0], sum = 0;
    for (int i = 1; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int i = 0; i < n; i++)
        sum += y[i] = expf(x[i] - top);
    for (int i = 0; i < n; i++)
        y[i] /= sum;
}
