"""llama.cpp through llama-cpp-python; the only package that imports `llama_cpp`."""
