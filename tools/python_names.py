"""What tools/gen-python cannot read from the headers: names, orders and defaults that NumPy and PyTorch have and C does not, and
the functions that Python does not get, each with its reason. A new op needs no line here."""

# Other names of functions, as NumPy, the Array API standard and PyTorch call them.
ALIASES = {
    "absolute": "abs", "acos": "acos", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "amax": "max", "amin": "min",
    "bitwise_invert": "bitwise_not", "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift",
    "divide": "div", "equal": "eq", "floor_divide": "floor_div", "greater": "gt", "greater_equal": "ge",
    "invert": "bitwise_not", "less": "lt", "less_equal": "le", "multiply": "mul", "negative": "neg", "not_equal": "ne",
    "remainder": "mod", "subtract": "sub", "swapaxes": "transpose", "true_divide": "div",
}

# Functions whose name means something else in NumPy.
RENAMED = {"gd_equal": "array_equal"}

# Functions of tensors that the package has otherwise, as methods or in a module, and functions of no tensors that it shows.
PRIVATE = {"call", "claim", "detach", "grad", "gelu_grad", "gelu_tanh_grad", "gradient", "integer_pow", "item", "output", "pow_log", "relu_grad", "retain_grad", "scalar", "set_name",
           "set_requires_grad", "silu_grad", "to"}
PUBLIC = {"augment_draws", "allclose", "array_equal"}

# Names of parameters.
PARAMETERS = {"keep": "keepdims", "axes": "axis"}

# Orders of parameters that are NumPy's or PyTorch's and not C's.
ORDER = {
    "gd_repeat": "x count axis", "gd_roll": "x shift axis", "gd_split": "x sizes axis", "gd_chunk": "x count axis",
    "gd_topk": "x k axis largest", "gd_uniform": "shape low high dtype", "gd_normal": "shape mean deviation dtype",
}

# Defaults of parameters that have none in C. A parameter with a default stands behind those without one.
DEFAULTS = {
    ("gd_softmax", "axis"): -1, ("gd_log_softmax", "axis"): -1, ("gd_glu", "axis"): -1, ("gd_sort", "axis"): -1,
    ("gd_argsort", "axis"): -1, ("gd_topk", "axis"): -1, ("gd_topk", "largest"): True, ("gd_concat", "axis"): 0,
    ("gd_stack", "axis"): 0, ("gd_split", "axis"): 0, ("gd_chunk", "axis"): 0, ("gd_take", "axis"): 0,
    ("gd_categorical", "axis"): -1, ("gd_cumsum", "axis"): -1, ("gd_cumprod", "axis"): -1,
    ("gd_var", "correction"): 0.0, ("gd_std", "correction"): 0.0, ("gd_norm", "p"): 2.0, ("gd_tril", "diagonal"): 0,
    ("gd_triu", "diagonal"): 0, ("gd_diagonal", "offset"): 0, ("gd_diagonal", "axis_a"): 0, ("gd_diagonal", "axis_b"): 1,
    ("gd_diag", "offset"): 0, ("gd_diag_embed", "offset"): 0, ("gd_uniform", "low"): 0.0, ("gd_uniform", "high"): 1.0,
    ("gd_normal", "mean"): 0.0, ("gd_normal", "deviation"): 1.0, ("gd_leaky_relu", "slope"): 0.01,
    ("gd_elu", "alpha"): 1.0, ("gd_dropout", "p"): 0.5, ("gd_transpose", "axis_a"): -2, ("gd_transpose", "axis_b"): -1,
    ("gd_pad", "value"): 0.0, ("gd_slice", "start"): 0, ("gd_slice", "stop"): 2 ** 63 - 1, ("gd_slice", "step"): 1,
    ("gd_linear", "bias"): None, ("gd_conv_with", "bias"): None,
    ("gd_conv_transpose_with", "bias"): None, ("gd_layer_norm_with", "weight"): None, ("gd_layer_norm_with", "bias"): None,
    ("gd_rms_norm_with", "weight"): None, ("gd_group_norm_with", "weight"): None, ("gd_group_norm_with", "bias"): None,
    ("gd_instance_norm_with", "weight"): None, ("gd_instance_norm_with", "bias"): None,
    ("gd_batch_norm_with", "weight"): None, ("gd_batch_norm_with", "bias"): None, ("gd_batch_norm_with", "mean"): None,
    ("gd_batch_norm_with", "variance"): None, ("gd_parameter", "init"): "default",
    ("gd_isclose", "relative"): 1e-5, ("gd_isclose", "absolute"): 1e-8, ("gd_isclose", "equal_nan"): False,
    ("gd_allclose", "relative"): 1e-5, ("gd_allclose", "absolute"): 1e-8, ("gd_allclose", "equal_nan"): False,
    ("gd_sinusoidal_positions", "start"): 0, ("gd_nn_embedding", "init"): "default",
}

# Truth values that are false unless they are given.
OFF = {"keep", "descending", "right", "accumulate", "per_channel"}

# Methods whose class or name is not that of the rule.
METHODS = {"gd_language_model_save_gguf_with": ("gd_language_model", "_save_gguf"), "gd_parameter_with": ("gd_module", "make_parameter"), "gd_buffer": ("gd_module", "make_buffer"),
           **{f"gd_model_{f}": ("gd_model_builder", f.removesuffix("_with")) for f in
              ("end", "add_with", "add_input", "insert_with", "replace_with", "remove", "set_outputs", "add_loss_with", "drop_losses")}}

# Objects that a function does not own: their owner ends them.
BORROWED = {"gd_loader_dataset", "gd_optimizer_module", "gd_model_module", "gd_language_model_module"}
# Functions that end their first argument.
CONSUMES = {"gd_model_builder_end"}

# Types whose classes are written by hand (Tensor, compiled functions) or that Python has no use for.
NO_CLASS = {"gd_npz", "gd_gguf", "gd_vmap", "gd_context", "gd_tensor", "gd_function", "DLManagedTensor", "DLManagedTensorVersioned",
            "ArrowArrayStream"}

SCALAR_HEADER = "the scalar engine is a chapter in C, to be read first; Python's tensors do what it does"
NOT_FOR_PYTHON = {
    "gd_set_allocator": "memory is the process's; replacing malloc from Python would call Python for each block",
    "gd_fail_allocations_after": "fault injection for the tests in C",
    "gd_set_log_callback": "may be called from any thread, which Python callbacks must not be",
    "gd_context_adopt": "for objects written in C", "gd_context_disown": "for objects written in C",
    "gd_module_context": "Python knows", "gd_function_context": "Python knows", "gd_tensor_context": "Tensor.context",
    "gd_close": "a context is closed when nothing of it is left", "gd_close_if_unused": "gd.Context calls it",
    "gd_to": "Tensor.to, which holds the lock of one context at a time", "gd_module_to": "nn.Module.to",
    **{name: "gd.from_dlpack and Tensor.__dlpack__" for name in (
        "gd_dlpack_export", "gd_dlpack_export_unversioned", "gd_dlpack_import", "gd_dlpack_import_unversioned",
        "gd_dlpack_set_capsules", "gd_dlpack_capsule_destructor")},
    **{f"gd_claim_{form}": "run_one and the like in _convert.py" for form in (
        "of_one", "of_two", "along_axes", "to_shape", "with_number")},
    "gd_claim_call": "a compiled function, called",
    **{f"gd_vmap_{what}": "gd.vmap" for what in ("begin", "end", "abandon")},
    "gd_release_later": "a Tensor gives its reference back itself", "gd_error_record": "functions that C calls raise exceptions",
    "gd_export_c": "step.save_c(path)",
    "gd_scope_begin": "scopes are not visible in Python: a Tensor owns one reference",
    "gd_keep": "scopes are not visible in Python",
    "gd_graph_verify": "debug builds call it themselves",
    "gd_fit_with": "gd.fit: a loop of Python, whose steps are one call each", "gd_evaluate_with": "as gd_fit",
    "gd_report_with": "as gd_fit", "gd_lr_range_with": "as gd_fit", "gd_model_objective": "as gd_fit", "gd_metrics_get": "as gd_fit",
    "gd_predict": "nn.Model is called: gd.compile makes it one call", "gd_predict_loader": "as gd_predict",
    "gd_predictor_create": "as gd_predict", "gd_predictor_release": "as gd_predict",
    "gd_schedule_follow": "a callback for gd_fit",
    "gd_idx_read_memory": "gd.data.read_idx reads files", "gd_idx_type_name": "dtypes say it", "gd_idx_type_size": "dtypes say it",
    "gd_file_write": "Python writes files", "gd_file_check_writable": "Python writes files",
    "gd_status_name": "exceptions are Python's", "gd_seconds": "time.perf_counter",
    "gd_options_default": "the defaults stand in the generated signatures",
    "gd_from_host_in_place": "memory that Python shares with the library comes with DLPack", "gd_mnist_pair": "gd.data.mnist, twice",
    "gd_shape_broadcast": "gd.broadcast_to and NumPy say it", "gd_tensor_map": "memory is read through numpy.asarray and .data",
    "gd_tensor_unmap": "as gd_tensor_map",
    **{name: "NumPy reads and writes its own files" for name in (
        "gd_npy_read", "gd_npy_write", "gd_npy_free", "gd_npz_open", "gd_npz_close", "gd_npz_count", "gd_npz_name", "gd_npz_find", "gd_npz_read")},
    **{f"gd_gguf_{what}": "the package gguf reads such files in Python; gd.text makes models of them" for what in (
        "open", "close", "count", "tensor_info", "find", "read", "key", "length", "text", "number", "type_name", "type_find")},
    "gd_table_known_rows": "gd.data.Table.known_rows", "gd_table_create_arrow": "gd.data.table",
    "gd_table_encode": "gd.data.TableEncoder.encode", "gd_table_dataset": "gd.data.TableEncoder.dataset",
    "gd_dataset_create_with": "gd.data.DataLoader takes anything with len() and [i]",
    "gd_dataset_from_arrays_with": "gd.data.from_arrays takes tensors",
    "gd_dataset_split_with": "gd.data.Dataset.split", "gd_dataset_fold_with": "gd.data.Dataset.fold",
    "gd_dataset_class_weights": "gd.data.Dataset.class_weights", "gd_dataset_sample_weights": "gd.data.Dataset.sample_weights",
    "gd_dataset_get": "gd.data.Dataset.__getitem__", "gd_dataset_field": "gd.data.Dataset.shape, .classes",
    "gd_model_forward_all": "nn.Model calls it: how many results there are, the model says",
    "gd_generate_with": "gd.text.generate is a loop of gd_generator_feed and gd_sample",
    "gd_generator_feed_all": "gd.text.perplexity is of gd_generator_loss",
    "gd_generator_speculate": "gd.text.generate calls it where there is a draft",
    **{f"gd_history_metric_{what}": "gd.report.metrics gives them" for what in ("steps", "times", "values")},
    "gd_chart_lr_range": "as gd_fit; Chart.line and Chart.mark draw any curve",
    "gd_layer_type_register_with": "in Python a layer of one's own is a subclass of nn.Module",
}

# Classes of gd.nn for functions of tensors, under PyTorch's names where it has the layer.
LAYERS = {
    "ReLU": "relu", "ReLU6": "relu6", "LeakyReLU": "leaky_relu", "ELU": "elu", "SELU": "selu", "GELU": "gelu", "GELUTanh": "gelu_tanh",
    "SiLU": "silu", "Mish": "mish", "Sigmoid": "sigmoid", "LogSigmoid": "log_sigmoid", "Tanh": "tanh", "Softplus": "softplus",
    "Softsign": "softsign", "Hardsigmoid": "hard_sigmoid", "Hardswish": "hard_swish", "Softmax": "softmax", "LogSoftmax": "log_softmax",
    "GLU": "glu", "AdaptiveAvgPool": "adaptive_avg_pool", "AdaptiveMaxPool": "adaptive_max_pool", "GlobalAvgPool": "global_avg_pool",
    "GlobalMaxPool": "global_max_pool", "RotaryPosition": "rope", "CosineSimilarity": "cosine_similarity",
    "CrossEntropyLoss": "cross_entropy", "NLLLoss": "nll", "BCELoss": "bce", "BCEWithLogitsLoss": "bce_with_logits", "FocalLoss": "focal",
    "HingeLoss": "hinge", "HingeEmbeddingLoss": "hinge_embedding", "KLDivLoss": "kl_div", "MSELoss": "mse", "L1Loss": "mae",
    "HuberLoss": "huber", "SmoothL1Loss": "smooth_l1", "CosineEmbeddingLoss": "cosine_embedding", "TripletMarginLoss": "triplet_margin",
    "CTCLoss": "ctc",
}
# Classes of gd.nn for layers that the library makes the parameters of, and which of their options a call is given.
MODULE_LAYERS = {
    "LSTM": "lstm", "GRU": "gru", "RNN": "rnn", "MultiheadAttention": "multi_head_attention", "FeedForward": "feed_forward",
    "PReLU": "prelu", "DropConnect": "drop_connect", "TokenEmbedding": "token_embedding", "TransformerEncoderLayer": "encoder_layer",
    "TransformerDecoderLayer": "decoder_layer", "TransformerEncoder": "encoder", "TransformerDecoder": "decoder",
    "Transformer": "transformer", "DecoderOnly": "decoder_only", "EncoderOnly": "encoder_only",
}
AT_CALL = {"start"}
# Names of optimizers that are not those of their functions with a capital.
OPTIMIZERS = {"sgd": "SGD", "adamw": "AdamW", "nadam": "NAdam", "radam": "RAdam", "rmsprop": "RMSprop", "lamb": "LAMB"}
