/* y = x + a * y */
void run(const float *x, float *y, int n) {
    const float a = 2.5f;
    for (int i = 0; i < n; i++)
        y[i] = x[i] + a * y[i];
}
