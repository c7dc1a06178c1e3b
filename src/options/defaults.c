/* options/defaults.c: the defaults of every struct of options by its name, for languages that have
 * neither the headers' macros nor their initializers. It stands above all other folders, since it
 * sees all public headers. To add a struct: a row in images[]; tools/check-options names what is
 * missing. */
#include "options/defaults.h"

#include "base/error.h"

#include <gradus/gradus.h>

#include <string.h>

typedef struct image {
    const char *type;
    const void *defaults;
    size_t size;
} image;

#define IMAGE(type, ...)                                  \
    {                                                     \
#type, &(const type){ __VA_ARGS__ }, sizeof(type) \
    }

static const image images[] = {
    IMAGE(gd_adadelta_options, GD_ADADELTA_DEFAULTS),
    IMAGE(gd_adagrad_options, GD_ADAGRAD_DEFAULTS),
    IMAGE(gd_adam_options, GD_ADAM_DEFAULTS),
    IMAGE(gd_adamw_options, GD_ADAMW_DEFAULTS),
    IMAGE(gd_attention_options, GD_ATTENTION_DEFAULTS),
    IMAGE(gd_audio_folder_options, GD_AUDIO_FOLDER_DEFAULTS),
    IMAGE(gd_augment_options, GD_AUGMENT_DEFAULTS),
    IMAGE(gd_batch_norm_options, GD_BATCH_NORM_DEFAULTS),
    IMAGE(gd_bce_options, GD_BCE_DEFAULTS),
    IMAGE(gd_bce_with_logits_options, GD_BCE_WITH_LOGITS_DEFAULTS),
    IMAGE(gd_chart_line_options, GD_CHART_LINE_DEFAULTS),
    IMAGE(gd_chart_options, GD_CHART_DEFAULTS),
    IMAGE(gd_cifar10_options, GD_CIFAR10_DEFAULTS),
    IMAGE(gd_compile_options, GD_COMPILE_DEFAULTS),
    IMAGE(gd_conv_options, GD_CONV_DEFAULTS),
    IMAGE(gd_cosine_embedding_options, GD_COSINE_EMBEDDING_DEFAULTS),
    IMAGE(gd_cross_entropy_options, GD_CROSS_ENTROPY_DEFAULTS),
    IMAGE(gd_ctc_options, GD_CTC_DEFAULTS),
    IMAGE(gd_dataset_from_arrays_options, GD_DATASET_FROM_ARRAYS_DEFAULTS),
    IMAGE(gd_dataset_idx_options, GD_DATASET_IDX_DEFAULTS),
    IMAGE(gd_dataset_options, GD_DATASET_DEFAULTS),
    IMAGE(gd_dataset_split_options, GD_DATASET_SPLIT_DEFAULTS),
    IMAGE(gd_distance_options, GD_DISTANCE_DEFAULTS),
    IMAGE(gd_ema_options, GD_EMA_DEFAULTS),
    IMAGE(gd_evaluate_options, GD_EVALUATE_DEFAULTS),
    IMAGE(gd_field, GD_FIELD_DEFAULTS),
    IMAGE(gd_fit_options, GD_FIT_DEFAULTS),
    IMAGE(gd_focal_options, GD_FOCAL_DEFAULTS),
    IMAGE(gd_generate_options, GD_GENERATE_DEFAULTS),
    IMAGE(gd_group_norm_options, GD_GROUP_NORM_DEFAULTS),
    IMAGE(gd_gguf_quantize_options, GD_GGUF_QUANTIZE_DEFAULTS),
    IMAGE(gd_hinge_options, GD_HINGE_DEFAULTS),
    IMAGE(gd_huber_options, GD_HUBER_DEFAULTS),
    IMAGE(gd_image_options, GD_IMAGE_DEFAULTS),
    IMAGE(gd_input_spec, GD_INPUT_SPEC_DEFAULTS),
    IMAGE(gd_instance_norm_options, GD_INSTANCE_NORM_DEFAULTS),
    IMAGE(gd_kl_div_options, GD_KL_DIV_DEFAULTS),
    IMAGE(gd_lamb_options, GD_LAMB_DEFAULTS),
    IMAGE(gd_language_options, GD_LANGUAGE_DEFAULTS),
    IMAGE(gd_language_load_options, GD_LANGUAGE_LOAD_DEFAULTS),
    IMAGE(gd_layer_norm_options, GD_LAYER_NORM_DEFAULTS),
    IMAGE(gd_layer_spec, GD_LAYER_SPEC_DEFAULTS),
    IMAGE(gd_layer_type_options, GD_LAYER_TYPE_DEFAULTS),
    IMAGE(gd_lbfgs_options, GD_LBFGS_DEFAULTS),
    IMAGE(gd_lion_options, GD_LION_DEFAULTS),
    IMAGE(gd_loader_options, GD_LOADER_DEFAULTS),
    IMAGE(gd_loss_spec, GD_LOSS_SPEC_DEFAULTS),
    IMAGE(gd_loss_scale_options, GD_LOSS_SCALE_DEFAULTS),
    IMAGE(gd_lr_range_options, GD_LR_RANGE_DEFAULTS),
    IMAGE(gd_mnist_options, GD_MNIST_DEFAULTS),
    IMAGE(gd_model_options, GD_MODEL_DEFAULTS),
    IMAGE(gd_model_spec, GD_MODEL_SPEC_DEFAULTS),
    IMAGE(gd_module_options, GD_MODULE_DEFAULTS),
    IMAGE(gd_nadam_options, GD_NADAM_DEFAULTS),
    IMAGE(gd_nll_options, GD_NLL_DEFAULTS),
    IMAGE(gd_nn_batch_norm_options, GD_NN_BATCH_NORM_DEFAULTS),
    IMAGE(gd_nn_conv_options, GD_NN_CONV_DEFAULTS),
    IMAGE(gd_nn_decoder_only_options, GD_NN_DECODER_ONLY_DEFAULTS),
    IMAGE(gd_nn_decoder_options, GD_NN_DECODER_DEFAULTS),
    IMAGE(gd_nn_encoder_only_options, GD_NN_ENCODER_ONLY_DEFAULTS),
    IMAGE(gd_nn_encoder_options, GD_NN_ENCODER_DEFAULTS),
    IMAGE(gd_nn_feed_forward_options, GD_NN_FEED_FORWARD_DEFAULTS),
    IMAGE(gd_nn_group_norm_options, GD_NN_GROUP_NORM_DEFAULTS),
    IMAGE(gd_nn_instance_norm_options, GD_NN_INSTANCE_NORM_DEFAULTS),
    IMAGE(gd_nn_layer_norm_options, GD_NN_LAYER_NORM_DEFAULTS),
    IMAGE(gd_nn_linear_options, GD_NN_LINEAR_DEFAULTS),
    IMAGE(gd_nn_multi_head_attention_options, GD_NN_MULTI_HEAD_ATTENTION_DEFAULTS),
    IMAGE(gd_nn_recurrent_options, GD_NN_RECURRENT_DEFAULTS),
    IMAGE(gd_nn_rms_norm_options, GD_NN_RMS_NORM_DEFAULTS),
    IMAGE(gd_nn_token_embedding_options, GD_NN_TOKEN_EMBEDDING_DEFAULTS),
    IMAGE(gd_nn_transformer_options, GD_NN_TRANSFORMER_DEFAULTS),
    IMAGE(gd_open_options, GD_OPEN_DEFAULTS),
    IMAGE(gd_optimizer_group_options, GD_OPTIMIZER_GROUP_DEFAULTS),
    IMAGE(gd_optimizer_options, GD_OPTIMIZER_DEFAULTS),
    IMAGE(gd_parameter_options, GD_PARAMETER_DEFAULTS),
    IMAGE(gd_plateau, GD_PLATEAU_DEFAULTS),
    IMAGE(gd_pool_options, GD_POOL_DEFAULTS),
    IMAGE(gd_radam_options, GD_RADAM_DEFAULTS),
    IMAGE(gd_recurrent_options, GD_RECURRENT_DEFAULTS),
    IMAGE(gd_report_options, GD_REPORT_DEFAULTS),
    IMAGE(gd_rms_norm_options, GD_RMS_NORM_DEFAULTS),
    IMAGE(gd_rmsprop_options, GD_RMSPROP_DEFAULTS),
    IMAGE(gd_rope_options, GD_ROPE_DEFAULTS),
    IMAGE(gd_run_log_options, GD_RUN_LOG_DEFAULTS),
    IMAGE(gd_run_options, GD_RUN_DEFAULTS),
    IMAGE(gd_sampler_options, GD_SAMPLER_DEFAULTS),
    IMAGE(gd_schedule, GD_SCHEDULE_DEFAULTS),
    IMAGE(gd_sgd_options, GD_SGD_DEFAULTS),
    IMAGE(gd_table_encoder_options, GD_TABLE_ENCODER_DEFAULTS),
    IMAGE(gd_table_options, GD_TABLE_DEFAULTS),
    IMAGE(gd_token_dataset_options, GD_TOKEN_DATASET_DEFAULTS),
    IMAGE(gd_training, GD_TRAINING_DEFAULTS),
    IMAGE(gd_transformer_config, GD_TRANSFORMER_CONFIG_DEFAULTS),
    IMAGE(gd_triplet_margin_options, GD_TRIPLET_MARGIN_DEFAULTS),
};

const char *gd_options_type(size_t i, size_t *size)
{
    if (i >= sizeof images / sizeof *images)
        return NULL;
    *size = images[i].size;
    return images[i].type;
}

gd_status gd_options_default(const char *type, void *options, size_t size)
{
    if (!type || !options || size < sizeof size)
        return gd_fail(GD_ERR_INVALID,
                       "gd_options_default: %s; a struct's name, its address and its size are "
                       "needed",
                       type && options ? "a size less than that of a size_t" : "a NULL");
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) {
        if (strcmp(images[i].type, type) != 0)
            continue;
        memset(options, 0, size);
        memcpy(options, images[i].defaults, size < images[i].size ? size : images[i].size);
        memcpy(options, &size, sizeof size);
        return GD_OK;
    }
    return gd_fail(GD_ERR_INVALID, "gd_options_default: there are no options \"%s\"", type);
}
